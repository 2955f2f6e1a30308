// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controls

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

// Naive is client-go's election, and a webhook as it is often written: it compares the number that a write shows in an
// annotation with that of the Lease in its informer. It looks at the new object, or at the old one of a delete; status and
// scale, which show no annotation of the request, and writes without the annotation pass.
type Naive struct {
	// Lags says that the informer hears of a handover only after the paused write has gone on, as it may.
	Lags bool

	election  *Election
	server    *http.Server
	served    sync.WaitGroup
	clientset kubernetes.Interface

	mu       sync.Mutex
	frozen   bool
	known    map[string]int32 // by namespace
	admitted map[types.NamespacedName]int
}

var _ pause.System = &Naive{}

const naiveName = "naive-fence"

// StartNaive registers the webhook. Close ends it.
func StartNaive(t env.T, cluster *env.Environment, lags bool) (*Naive, error) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	n := &Naive{
		Lags: lags, election: &Election{Cluster: cluster}, clientset: clientset,
		known: map[string]int32{}, admitted: map[types.NamespacedName]int{},
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	informer := factory.Coordination().V1().Leases().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: n.hear, UpdateFunc: func(_, now any) { n.hear(now) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch leases: %w", err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	certPEM, keyPEM, ca, err := cluster.ServingCertificate()
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load serving certificate: %w", err)
	}
	port, err := cluster.Port()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	n.server = &http.Server{
		Handler: n, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: stdlog.New(io.Discard, "", 0),
	}
	n.served.Go(func() { _ = n.server.ServeTLS(listener, "", "") })
	t.Cleanup(func() { _ = n.server.Close(); n.served.Wait() })
	return n, n.register(t, "https://"+address, ca)
}

// register writes the configuration and waits until it is in force.
func (n *Naive) register(t env.T, url string, ca []byte) error {
	ctx, configurations := t.Context(), n.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configurations.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: naiveName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         naiveName + ".example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{
					admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
				},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports", "reports/status", "reports/scale"},
				},
			}},
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register webhook: %w", err)
	}
	t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(ctx), naiveName, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove webhook: %v", err)
		}
	})
	c, err := env.Client(n.election.Cluster.Config())
	if err != nil {
		return err
	}
	probe := env.NewReport(metav1.NamespaceDefault, "probe", "")
	return until(ctx, func() bool {
		// A dry run; what comes of it shows in what the webhook counts.
		_ = c.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		return n.count(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: probe.GetName()}) > 0
	})
}

// hear takes a Lease of the informer.
func (n *Naive) hear(o any) {
	lease, ok := o.(*coordinationv1.Lease)
	if !ok || lease.Name != leaseName {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.frozen {
		n.known[lease.Namespace] = ptr.Deref(lease.Spec.LeaseTransitions, 0)
	}
}

func (n *Naive) knows(namespace string) int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[namespace]
}

func (n *Naive) count(key types.NamespacedName) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.admitted[key]
}

// ServeHTTP answers a review.
func (n *Naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "body is no review", http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if err := n.judge(review.Request); err != nil {
		response.Allowed, response.Result = false, &metav1.Status{Code: http.StatusForbidden, Message: err.Error()}
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (n *Naive) judge(request *admissionv1.AdmissionRequest) error {
	raw := request.Object.Raw
	if request.Operation == admissionv1.Delete {
		raw = request.OldObject.Raw
	}
	object := metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("decode object: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if text, shown := object.Annotations[generationAnnotation]; shown && request.SubResource == "" {
		if generation, err := strconv.Atoi(text); err != nil || int32(generation) < n.known[request.Namespace] { //nolint:gosec // small
			return errors.New("the generation is stale")
		}
	}
	n.admitted[types.NamespacedName{Namespace: request.Namespace, Name: object.Name}]++
	return nil
}

// Begin implements pause.System.
func (n *Naive) Begin(ctx context.Context, namespace string, _ pause.Strategy) (pause.Story, error) {
	n.mu.Lock()
	n.frozen = false
	n.mu.Unlock()
	s, err := n.election.begin(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return &naiveStory{electionStory: s, naive: n}, nil
}

// naiveStory is one Lease with the webhook.
type naiveStory struct {
	*electionStory
	naive *Naive
}

var _ pause.Story = &naiveStory{}

// TakeOver implements pause.Story.
func (s *naiveStory) TakeOver(ctx context.Context) error {
	if s.naive.Lags {
		s.naive.mu.Lock()
		s.naive.frozen = true
		s.naive.mu.Unlock()
	}
	if err := s.electionStory.TakeOver(ctx); err != nil {
		return err
	}
	if s.naive.Lags {
		return nil
	}
	return until(ctx, func() bool { return s.naive.knows(s.namespace) == s.transitions[pause.B] })
}

// Admissions implements pause.Story.
func (s *naiveStory) Admissions(name string) int {
	return s.naive.count(types.NamespacedName{Namespace: s.namespace, Name: name})
}
