// Command server serves a directory with quic-go's HTTP/3 server, as a peer for measurements.
package main

import (
	"flag"
	"log"
	"net/http"

	"github.com/quic-go/quic-go/http3"
)

func main() {
	address := flag.String("address", "127.0.0.1:8453", "address to listen on")
	root := flag.String("root", ".", "directory to serve")
	certificate := flag.String("certificate", "localhost.crt", "certificate file (PEM)")
	key := flag.String("key", "localhost.key", "key file (PEM)")
	flag.Parse()
	server := http3.Server{Addr: *address, Handler: http.FileServer(http.Dir(*root))}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}
