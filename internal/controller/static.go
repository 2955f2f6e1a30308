// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"net/url"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// injectBundle gives the CA bundle to the webhook configuration for FencedLeases, which is part of the installation. By
// Service it applies nothing else, so whoever applies the manifest, by whatever tool, and the controller never write the
// same field. By URL it also has to replace the Service of the manifest, which apply cannot: use that for clusters whose
// API servers cannot reach Services only.
func injectBundle(ctx context.Context, c client.Client, reader client.Reader, endpoint Endpoint, bundle []byte) (changed bool, err error) {
	live := &admissionv1.ValidatingWebhookConfiguration{}
	// From the API server, see applyWhenDifferent.
	if err := reader.Get(ctx, client.ObjectKey{Name: ValidationName}, live); err != nil {
		if apierrors.IsNotFound(err) {
			// Not installed, or being uninstalled: there is nothing to give the bundle to. Its watch tells when it comes.
			return false, nil
		}
		return false, fmt.Errorf("get ValidatingWebhookConfiguration %s: %w", ValidationName, err)
	}
	if endpoint.URL != "" {
		return redirect(ctx, c, live, endpoint, bundle)
	}
	configuration := applyv1.ValidatingWebhookConfiguration(ValidationName).WithUID(live.UID)
	for i := range live.Webhooks {
		changed = changed || !bytes.Equal(live.Webhooks[i].ClientConfig.CABundle, bundle)
		configuration.WithWebhooks(applyv1.ValidatingWebhook().WithName(live.Webhooks[i].Name).
			WithClientConfig(applyv1.WebhookClientConfig().WithCABundle(bundle...)))
	}
	if !changed {
		return false, nil
	}
	if err := c.Apply(ctx, configuration, FieldManager, client.ForceOwnership); err != nil {
		return false, fmt.Errorf("apply CA bundle to ValidatingWebhookConfiguration %s: %w", ValidationName, err)
	}
	return true, nil
}

// redirect makes the configuration call by URL.
func redirect(
	ctx context.Context, c client.Client, live *admissionv1.ValidatingWebhookConfiguration, endpoint Endpoint, bundle []byte,
) (changed bool, err error) {
	updated := live.DeepCopy()
	for i := range updated.Webhooks {
		config := &updated.Webhooks[i].ClientConfig
		path, err := pathOf(*config)
		if err != nil {
			return false, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", ValidationName, err)
		}
		to := endpoint.clientConfig(path, bundle)
		changed = changed || config.Service != nil || ptr.Deref(config.URL, "") != *to.URL || !bytes.Equal(config.CABundle, bundle)
		*config = to
	}
	if !changed {
		return false, nil
	}
	// An update is conditioned on the resourceVersion that was read.
	if err := c.Update(ctx, updated, FieldManager); err != nil {
		return false, fmt.Errorf("update ValidatingWebhookConfiguration %s: %w", ValidationName, err)
	}
	return true, nil
}

func pathOf(config admissionv1.WebhookClientConfig) (string, error) {
	if config.Service != nil {
		return ptr.Deref(config.Service.Path, "/"), nil
	}
	u, err := url.Parse(ptr.Deref(config.URL, ""))
	if err != nil {
		return "", fmt.Errorf("parse url: %w", err)
	}
	return u.Path, nil
}
