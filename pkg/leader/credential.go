// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

const (
	// defaultLifetime and minLifetime are of the tokens of a Credential; API servers issue no shorter ones.
	defaultLifetime = time.Hour
	minLifetime     = 10 * time.Minute

	// credentialRequest bounds one request for a token, or of its id.
	credentialRequest = 10 * time.Second
)

// CredentialOptions are the choices of a Credential. Config and ServiceAccount are required.
type CredentialOptions struct {
	// Config reaches the API server with rights to create tokens of the service account (create on serviceaccounts/token),
	// and to record them (get on fencedleases, patch on fencedleases/status). It is the process's own, not that of a term.
	Config *rest.Config

	// ServiceAccount is whose tokens are requested. An empty namespace means that of the FencedLease.
	ServiceAccount types.NamespacedName

	// PodName and PodUID bind the tokens to a pod, so that they end with it at the latest. Empty means unbound.
	PodName string
	PodUID  types.UID

	// Audiences are for whom the tokens are. Empty means the API server.
	Audiences []string

	// Lifetime is how long a token is to be valid. API servers may shorten it. Zero means one hour, at least are ten
	// minutes. A new token is requested when half of it is over.
	Lifetime time.Duration

	// TokenFile is a file that always holds the present token, for programs that are given a token file. It is replaced in
	// one step, can be read by its owner only, and is removed by Close. Its folder must exist. Empty means none.
	TokenFile string

	// Clock is the clock. Nil means the real one.
	Clock clock.WithTicker
}

func (o *CredentialOptions) complete(lease types.NamespacedName) error {
	switch {
	case o.Config == nil:
		return errors.New("CredentialOptions.Config is missing")
	case o.ServiceAccount.Name == "":
		return errors.New("CredentialOptions.ServiceAccount names no service account")
	case (o.PodName == "") != (o.PodUID == ""):
		return errors.New("CredentialOptions.PodName and PodUID go together")
	case o.Lifetime != 0 && o.Lifetime < minLifetime:
		return fmt.Errorf("CredentialOptions.Lifetime is %s, at least %s is possible", o.Lifetime, minLifetime)
	}
	if o.ServiceAccount.Namespace == "" {
		o.ServiceAccount.Namespace = lease.Namespace
	}
	if o.Lifetime == 0 {
		o.Lifetime = defaultLifetime
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// Credential is a token of a service account that was requested for one term, and that the FencedLease lists for it: every
// request made with it presents the token of the term, whatever the verb and the program. It is renewed until the term
// ends. After that the API server refuses writes that are made with it, also those of programs that know nothing of terms.
type Credential struct {
	options CredentialOptions
	term    *Term
	tokens  corev1client.ServiceAccountInterface
	lease   possession.Client
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	current bearerToken
	// earlier are tokens that were replaced and that programs may still use.
	earlier []bearerToken
}

// Credential requests a token for the term, records its id in status.credentials, and writes it to the token file. It is to
// be closed when the work returns:
//
//	credential, err := term.Credential(ctx, leader.CredentialOptions{Config: config, ServiceAccount: account})
//	if err != nil {
//		return err
//	}
//	defer credential.Close()
//
// An API server that does not answer is asked again until ctx or the term ends. The token is renewed until ctx or the term
// ends, or Close is called.
func (t *Term) Credential(ctx context.Context, options CredentialOptions) (*Credential, error) {
	if err := options.complete(t.Lease()); err != nil {
		return nil, fmt.Errorf("make a credential for FencedLease %s: %w", t.Lease(), err)
	}
	core, err := corev1client.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client for tokens: %w", err)
	}
	status, err := possession.NewClient(options.Config)
	if err != nil {
		return nil, err
	}
	c := &Credential{
		options: options, term: t, done: make(chan struct{}),
		tokens: core.ServiceAccounts(options.ServiceAccount.Namespace),
		lease:  possession.Client{REST: status, Namespace: t.info.Namespace, Name: t.info.Name},
	}
	for failures := 1; ; failures++ {
		err := c.refresh(ctx)
		if err == nil {
			break
		}
		if !mayPass(err) || !c.wait(ctx, pause(failures, fallbackPause)) {
			return nil, fmt.Errorf("make a credential for FencedLease %s: %w", t.Lease(), errors.Join(err, t.Err()))
		}
	}
	running, stop := context.WithCancel(ctx)
	c.stop = stop
	go c.keep(running)
	return c, nil
}

// mayPass reports whether an error says nothing about the next attempt.
func mayPass(err error) bool {
	var lost *LostError
	status := apierrors.APIStatus(nil)
	switch {
	case errors.As(err, &lost), errors.Is(err, errNotUsable):
		return false
	case !errors.As(err, &status):
		return true // no answer came
	default:
		return status.Status().Code >= 500 || apierrors.IsTooManyRequests(err)
	}
}

// Token returns the present token.
func (c *Credential) Token() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.text
}

// ID returns the id by which the API server and status.credentials know the present token.
func (c *Credential) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.id
}

// Config returns a copy of a configuration whose clients make every request with the present token, and send no write after
// the term has ended. Only where the API server is, and how it is reached, is taken from config.
func (c *Credential) Config(config *rest.Config) *rest.Config {
	return fenced.WithBearerToken(config, c.term, c.Token)
}

// Close stops the renewal, waits until that has ended, and removes the token file. The token itself stays valid until it
// expires: writes that are made with it are accepted as long as its term is held, and refused afterwards.
func (c *Credential) Close() error {
	c.stop()
	<-c.done
	if c.options.TokenFile == "" {
		return nil
	}
	return removeToken(c.options.TokenFile, c.Token())
}

// keep renews the token until ctx or the term ends.
func (c *Credential) keep(ctx context.Context) {
	defer close(c.done)
	logger := klog.FromContext(ctx)
	failures, next := 0, c.untilRefresh()
	for c.wait(ctx, next) {
		err := c.refresh(ctx)
		if err == nil {
			failures, next = 0, c.untilRefresh()
			continue
		}
		if ctx.Err() != nil || c.term.Err() != nil {
			return
		}
		failures++
		next = pause(failures, c.options.Lifetime/100)
		logger.Info("Could not renew the credential of the term, it expires", "lease", c.term.Lease(), "token", c.term.Token().String(),
			"failures", failures, "err", err)
	}
}

// wait waits and reports whether the term and ctx go on.
func (c *Credential) wait(ctx context.Context, d time.Duration) bool {
	timer := c.options.Clock.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-c.term.Done():
	case <-timer.C():
	}
	return ctx.Err() == nil && c.term.Err() == nil
}

// untilRefresh returns how long the present token is still in its first half.
func (c *Credential) untilRefresh() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.lifetime/2 - c.options.Clock.Since(c.current.requested)
}

// refresh requests a token, records it, and only then lets it be used. What can fail by this process's own doing fails
// before the token is recorded, so that repetitions push no other credential out.
func (c *Credential) refresh(ctx context.Context) error {
	fresh, err := c.request(ctx)
	if err != nil {
		return err
	}
	file, err := newTokenFile(c.options.TokenFile, fresh.text)
	if err != nil {
		return err
	}
	defer file.discard()
	if err := c.record(ctx, fresh.id); err != nil {
		return err
	}
	if err := file.publish(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.id != "" {
		c.earlier = append(c.earlier, c.current)
	}
	c.current = fresh
	return nil
}

func (c *Credential) request(ctx context.Context) (bearerToken, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialRequest)
	defer cancel()
	spec := authenticationv1.TokenRequestSpec{
		Audiences: c.options.Audiences, ExpirationSeconds: ptr.To(int64(c.options.Lifetime / time.Second)),
	}
	if c.options.PodName != "" {
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: c.options.PodName, UID: c.options.PodUID}
	}
	requested := c.options.Clock.Now()
	answer, err := c.tokens.CreateToken(ctx, c.options.ServiceAccount.Name, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return bearerToken{}, fmt.Errorf("request a token of service account %s: %w", c.options.ServiceAccount, err)
	}
	return parseBearerToken(answer.Status.Token, requested)
}

// record adds the id to status.credentials, as the holder of the term. It reads the lease live from the server; another
// write in between, such as a renewal, makes it read again.
func (c *Credential) record(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, credentialRequest)
	defer cancel()
	for {
		lease, err := c.lease.Get(ctx)
		if err != nil {
			return err
		}
		if lease.UID != c.term.info.UID || !possession.Shows(lease, c.term.info) {
			return possession.NewLostError(c.term.info, lease, lease.UID != c.term.info.UID, nil)
		}
		_, err = c.lease.PatchStatus(ctx, possession.Recording(lease, c.term.info, id, c.spent()))
		if err == nil {
			return nil
		}
		if apierrors.IsConflict(err) {
			continue
		}
		if lost, _ := c.lease.Ended(ctx, c.term.info, err); lost != nil {
			return lost
		}
		return fmt.Errorf("record a credential of FencedLease %s: %w", c.lease, err)
	}
}

// spent returns the ids of earlier tokens of this credential that have expired. It forgets those for which there would be
// no room on the lease.
func (c *Credential) spent() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if extra := len(c.earlier) - possession.MaxCredentials; extra > 0 {
		c.earlier = c.earlier[extra:]
	}
	ids := map[string]bool{}
	for _, t := range c.earlier {
		// The API server's clock may run slower than this one.
		if c.options.Clock.Since(t.requested) > t.lifetime+t.lifetime/4 {
			ids[t.id] = true
		}
	}
	return ids
}
