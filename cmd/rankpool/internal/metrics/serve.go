package metrics

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Time limits of the HTTP server. A scrape takes milliseconds, and Prometheus gives up after 10 s
// by default.
//
// Source: Prometheus, Configuration, scrape_timeout.
const (
	readTimeout   = 5 * time.Second
	answerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeadBytes  = 16 << 10
	maxScrapes    = 4 // at the same time
)

// A Server answers GET /metrics.
type Server struct {
	http *http.Server
	addr net.Addr
	done chan struct{}
}

// Serve serves gatherer's metrics on a TCP address such as ":10477"; port 0 takes a free one, see
// Addr.
//
// The error wraps syscall.EADDRINUSE if another process has the port.
func Serve(addr string, gatherer prometheus.Gatherer) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(
		gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: answerTimeout}))
	s := &Server{
		http: &http.Server{
			Handler: mux, ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout,
			WriteTimeout: readTimeout + answerTimeout, IdleTimeout: idleTimeout,
			MaxHeaderBytes: maxHeadBytes,
		},
		addr: listener.Addr(), done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close() // it no longer accepts, and training continues
		}
	}()
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.addr }

// Close closes the server and its connections, and returns when it has stopped.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}
