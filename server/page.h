// page.h - the web page at / : its files are part of the binary and need nothing from elsewhere. Loop thread.
#pragma once

struct request;

void page_index(struct request *r);  // GET /
void page_file(struct request *r);   // GET /web/NAME
