// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mutants_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// apiProxy stands between the manager and the API server and understands their requests: it holds, fails or changes
// chosen ones, and can keep the manager from hearing of changes of leases.
type apiProxy struct {
	url string

	mu     sync.Mutex
	rules  []*rule
	frozen chan struct{} // closed at the thaw; nil if nothing is frozen
}

// rule is what becomes of requests that match.
type rule struct {
	match func(*http.Request) bool
	// fail answers 503; dryRun lets the API server answer and store nothing.
	fail, dryRun bool
	// request and response are held before they go on.
	request, response *hold
}

// hold keeps one message.
type hold struct {
	once     sync.Once
	entered  chan struct{}
	released chan struct{}
	release  func()
}

func newHold() *hold {
	h := &hold{entered: make(chan struct{}), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	return h
}

// wait keeps the first that comes; the others pass.
func (h *hold) wait(ctx context.Context) {
	if h == nil {
		return
	}
	h.once.Do(func() {
		close(h.entered)
		select {
		case <-h.released:
		case <-ctx.Done():
		}
	})
}

func startAPIProxy(t env.T, cluster *env.Environment) (*apiProxy, error) {
	t.Helper()
	admin := cluster.Config()
	target, err := url.Parse(admin.Host)
	if err != nil {
		return nil, err
	}
	port, err := cluster.Port()
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, ca, err := cluster.ServingCertificate()
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("read the authority's certificate")
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	p := &apiProxy{url: "https://" + address}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	reverse := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.answered,
		ErrorLog:       stdlog.New(io.Discard, "", 0),
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, reverse) }),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          stdlog.New(io.Discard, "", 0),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() {
		p.thaw()
		_ = server.Close()
		<-served
		transport.CloseIdleConnections()
	})
	return p, nil
}

// config sends a configuration by the proxy.
func (p *apiProxy) config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = p.url
	return config
}

// add makes a rule, and returns what takes it away again.
func (p *apiProxy) add(r *rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return func() {
		for _, h := range []*hold{r.request, r.response} {
			if h != nil {
				h.release()
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
	}
}

// freeze keeps what watches of leases tell from the manager.
func (p *apiProxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

func (p *apiProxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

func (p *apiProxy) matching(r *http.Request) []*rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.rules), func(one *rule) bool { return !one.match(r) })
}

type matchedKey struct{}

func (p *apiProxy) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	matched := p.matching(r)
	for _, one := range matched {
		one.request.wait(r.Context())
		if one.fail {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		if one.dryRun {
			query := r.URL.Query()
			query.Set("dryRun", "All")
			r.URL.RawQuery = query.Encode()
		}
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), matchedKey{}, matched)))
}

func (p *apiProxy) answered(response *http.Response) error {
	r := response.Request
	matched, _ := r.Context().Value(matchedKey{}).([]*rule)
	for _, one := range matched {
		one.response.wait(r.Context())
	}
	if isLeases(r) && r.URL.Query().Get("watch") != "" {
		response.Body = &freezingBody{response.Body, p, r.Context()}
	}
	return nil
}

func isLeases(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/apis/"+v1alpha1.GroupName+"/") && strings.Contains(r.URL.Path, "/"+v1alpha1.Resource.Resource)
}

// freezingBody is the answer to a watch.
type freezingBody struct {
	io.ReadCloser
	proxy *apiProxy
	ctx   context.Context // the request's
}

func (f *freezingBody) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	f.proxy.mu.Lock()
	frozen := f.proxy.frozen
	f.proxy.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-f.ctx.Done():
		}
	}
	return n, err
}
