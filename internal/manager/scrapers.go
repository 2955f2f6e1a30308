// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// scrapeTimeout is how long the API server may take to say who a scraper is and what it may do.
const scrapeTimeout = 10 * time.Second

// scrapers lets those read the metrics who may: it asks the API server who presents a token, and whether that user may get
// the path. The filter of controller-runtime does the same, but answers 500 to a token that the API server does not know: the
// review of such a token carries an error text besides its verdict, which that filter takes for a failure of the review.
type scrapers struct {
	kube kubernetes.Interface
}

// filterScrapers is the FilterProvider of the metrics endpoint.
func filterScrapers(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	kube, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("build client for reviews of scrapers: %w", err)
	}
	return scrapers{kube}.filter, nil
}

func (s scrapers) filter(log logr.Logger, metrics http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
		defer cancel()
		code, err := s.judge(ctx, r)
		switch {
		case err != nil:
			log.Error(err, "Cannot tell whether a scraper may read the metrics")
		case code == http.StatusOK:
			metrics.ServeHTTP(w, r)
			return
		case code == http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, http.StatusText(code), code)
	}), nil
}

// judge returns 200 if the metrics may be read, else the code of the answer. Both reviews are made for each request, as
// scrapes are few, and by the API server, so a token or a right that is withdrawn opens nothing any more.
func (s scrapers) judge(ctx context.Context, r *http.Request) (code int, err error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized, nil
	}
	who, err := s.kube.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review token: %w", err)
	}
	// An error in the status says why there is no user, and is nothing that went wrong here.
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	may, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
		},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return http.StatusInternalServerError, fmt.Errorf("review access: %w", err)
	case !may.Status.Allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
