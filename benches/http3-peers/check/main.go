// Command check makes requests with quic-go's HTTP/3 client to the server of nginx.conf in this directory, and prints a line for
// each check. It exits with status 1 if one fails.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const fileBytes = 5120

var (
	address = flag.String("address", "127.0.0.1:8443", "address of the server")
	pid     = flag.Int("pid", 0, "master process, which gets HUP during a download")
	timeout = flag.Duration("timeout", 20*time.Second, "time for each check")
)

// client is one connection of HTTP/3 on a socket of its own.
type client struct {
	socket    *net.UDPConn
	transport *quic.Transport
	conn      *quic.Conn
	http      *http3.ClientConn
}

func tlsConfig(sessions tls.ClientSessionCache) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true,
		ServerName:         "localhost",
		NextProtos:         []string{http3.NextProtoH3},
		ClientSessionCache: sessions,
	}
}

func newTransport() (*net.UDPConn, *quic.Transport, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	return socket, &quic.Transport{Conn: socket}, nil
}

func connect(ctx context.Context, sessions tls.ClientSessionCache) (*client, error) {
	to, err := net.ResolveUDPAddr("udp", *address)
	if err != nil {
		return nil, err
	}
	socket, transport, err := newTransport()
	if err != nil {
		return nil, err
	}
	conn, err := transport.DialEarly(ctx, to, tlsConfig(sessions), &quic.Config{})
	if err != nil {
		return nil, err
	}
	return &client{socket, transport, conn, (&http3.Transport{}).NewClientConn(conn)}, nil
}

func (c *client) close() {
	c.http.CloseWithError(0, "")
	c.transport.Close()
	c.socket.Close()
}

// ask returns the body of a response, which must have the status 200 unless another one is given.
func (c *client) ask(ctx context.Context, method, path string, body []byte, status int) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+*address+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := c.http.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != status {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return string(text), err
}

func (c *client) get(ctx context.Context, path string) (string, error) {
	return c.ask(ctx, http.MethodGet, path, nil, http.StatusOK)
}

func expect(got string, err error, want string) error {
	if err == nil && got != want {
		err = fmt.Errorf("%q instead of %q", got, want)
	}
	return err
}

func checkMethods(ctx context.Context, c *client) error {
	text, err := c.get(ctx, "/5k")
	if err == nil && len(text) != fileBytes {
		err = fmt.Errorf("%d bytes of a file", len(text))
	}
	if err != nil {
		return err
	}
	text, err = c.ask(ctx, http.MethodHead, "/5k", nil, http.StatusOK)
	if err := expect(text, err, ""); err != nil {
		return fmt.Errorf("HEAD: %w", err)
	}
	_, err = c.ask(ctx, http.MethodGet, "/none", nil, http.StatusNotFound)
	return err
}

func checkPost(ctx context.Context, c *client) error {
	text, err := c.ask(ctx, http.MethodPost, "/length", bytes.Repeat([]byte("b"), 1<<20), http.StatusOK)
	return expect(text, err, "1048576")
}

func checkLargeHeaders(ctx context.Context, c *client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+*address+"/field", nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-Field", strings.Repeat("f", 6000))
	response, err := c.http.RoundTrip(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	return expect(string(text), err, strings.Repeat("f", 6000))
}

func checkParallel(ctx context.Context, c *client) error {
	const requests = 100
	var group sync.WaitGroup
	results := make([]error, requests)
	for i := range requests {
		group.Add(1)
		go func() {
			defer group.Done()
			text, err := c.get(ctx, "/5k")
			if err == nil && len(text) != fileBytes {
				err = fmt.Errorf("%d bytes", len(text))
			}
			results[i] = err
		}()
	}
	group.Wait()
	return errors.Join(results...)
}

func checkCancel(ctx context.Context, c *client) error {
	for range 20 {
		stopped, cancel := context.WithCancel(ctx)
		request, _ := http.NewRequestWithContext(stopped, http.MethodGet, "https://"+*address+"/slow", nil)
		response, err := c.http.RoundTrip(request)
		if err != nil {
			cancel()
			return err
		}
		_, err = io.ReadFull(response.Body, make([]byte, 1000))
		cancel()
		response.Body.Close()
		if err != nil {
			return err
		}
	}
	text, err := c.get(ctx, "/length")
	return expect(text, err, "")
}

func checkEarly(ctx context.Context, _ *client) error {
	sessions := tls.NewLRUClientSessionCache(10)
	first, err := connect(ctx, sessions)
	if err != nil {
		return err
	}
	text, err := first.get(ctx, "/early")
	if err := expect(text, err, "early:"); err != nil {
		return err
	}
	// The session ticket may follow the response.
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, ok := sessions.Get("localhost"); ok {
			break
		}
	}
	first.close()
	second, err := connect(ctx, sessions)
	if err != nil {
		return err
	}
	defer second.close()
	text, err = second.ask(ctx, http3.MethodGet0RTT, "/early", nil, http.StatusOK)
	if err := expect(text, err, "early:1"); err != nil {
		return err
	}
	if !second.conn.ConnectionState().Used0RTT {
		return errors.New("0-RTT was rejected")
	}
	return nil
}

func checkMigration(ctx context.Context, c *client) error {
	before, err := c.get(ctx, "/who")
	if err != nil {
		return err
	}
	for range 3 {
		_, transport, err := newTransport()
		if err != nil {
			return err
		}
		path, err := c.conn.AddPath(transport)
		if err != nil {
			return err
		}
		if err := path.Probe(ctx); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		if err := path.Switch(); err != nil {
			return fmt.Errorf("switch: %w", err)
		}
		port := fmt.Sprint(transport.Conn.LocalAddr().(*net.UDPAddr).Port)
		// The first request may arrive before the server has validated the address.
		for {
			after, err := c.get(ctx, "/who")
			if err != nil {
				return err
			}
			was, is := strings.Fields(before), strings.Fields(after)
			if was[0] != is[0] {
				return errors.New("another connection")
			}
			if is[1] == port {
				break
			}
		}
	}
	return nil
}

func checkReload(ctx context.Context, c *client) error {
	if *pid == 0 {
		return errors.New("skipped: no -pid")
	}
	before, err := c.get(ctx, "/who")
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+*address+"/slow", nil)
	if err != nil {
		return err
	}
	response, err := c.http.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	total := 0
	buf := make([]byte, 100_000)
	for {
		n, err := io.ReadFull(response.Body, buf)
		total += n
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
		if err := syscall.Kill(*pid, syscall.SIGHUP); err != nil {
			return err
		}
	}
	if total != 1_000_000 {
		return fmt.Errorf("%d bytes", total)
	}
	after, err := c.get(ctx, "/who")
	return expect(after, err, before)
}

func main() {
	flag.Parse()
	failed := false
	for _, check := range []struct {
		name string
		run  func(context.Context, *client) error
	}{
		{"GET, HEAD, 404", checkMethods},
		{"POST of 1 MB", checkPost},
		{"field of 6,000 bytes", checkLargeHeaders},
		{"100 requests at a time", checkParallel},
		{"20 cancelled downloads", checkCancel},
		{"0-RTT", checkEarly},
		{"connection migration", checkMigration},
		{"download during reloads", checkReload},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), *timeout)
		c, err := connect(ctx, nil)
		if err == nil {
			err = check.run(ctx, c)
			c.close()
		}
		cancel()
		if err != nil {
			failed = true
			fmt.Printf("FAILED  %s: %v\n", check.name, err)
		} else {
			fmt.Printf("ok      %s\n", check.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}
