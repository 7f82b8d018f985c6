#!/bin/sh
# make_door.sh - the certificates of tests/fixtures/door, for tests only: two good ones with their keys, one expired, a key
# with a password, a key that belongs to none.
set -eu
cd "$(dirname "$0")/../fixtures/door"
make_one() { # make_one NAME DAYS
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key.pem" -out "$1.cert.pem" \
        -subj "/CN=$1.example" -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -days "$2"
}
make_one one 36500
make_one two 36500
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes-256-cbc -pass pass:secret -out locked.key.pem
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
: > "$folder/index"
echo 01 > "$folder/serial"
openssl req -new -key one.key.pem -subj /CN=expired.example -out "$folder/request.pem"
cat > "$folder/ca.conf" <<CONF
[ca]
default_ca = here
[here]
database = $folder/index
serial = $folder/serial
new_certs_dir = $folder
default_md = sha256
policy = any
[any]
commonName = supplied
CONF
openssl ca -batch -config "$folder/ca.conf" -selfsign -keyfile one.key.pem -in "$folder/request.pem" -notext \
    -startdate 20200101000000Z -enddate 20210101000000Z -out expired.cert.pem
