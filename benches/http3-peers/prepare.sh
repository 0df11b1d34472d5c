#!/bin/sh
# Fills a directory with nginx.conf, a certificate for localhost, and files: prepare.sh DIRECTORY
set -e
mkdir -p "$1/html" "$1/logs"
cp "$(dirname "$0")/nginx.conf" "$1/"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1/localhost.key" -out "$1/localhost.crt" \
    -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
head -c 5120 /dev/zero | tr '\0' x > "$1/html/5k"
head -c 1000000 /dev/zero > "$1/html/1m"
