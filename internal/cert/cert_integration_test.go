// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// caughtUp reports whether the replica has done what was due two checks ago. The clock of these tests runs a thousand
// times faster than the API server answers.
func (r *replica) caughtUp() bool {
	late := r.opts.Clock.Now().Add(-3 * r.opts.CheckInterval)
	r.mu.Lock()
	defer r.mu.Unlock()
	leaf := r.served.Load()
	return r.readAt.After(late.Add(-r.opts.RereadInterval)) && (leaf == nil || leaf.renewAt.After(late))
}

// pass lets time go by in steps. After each, every caller completes a call that began after it, and every replica catches
// up.
func (c *cluster) pass(d, step time.Duration, callers []*caller, replicas []*replica, until func() bool) {
	for range int(d / step) {
		c.clock.Step(step)
		for _, caller := range callers {
			// The first may have begun before the step.
			want := caller.count() + 2
			c.Eventually(caller.count).WithTimeout(patience).WithPolling(200 * time.Microsecond).Should(BeNumerically(">=", want))
		}
		for _, r := range replicas {
			c.Eventually(r.caughtUp).WithTimeout(patience).WithPolling(200 * time.Microsecond).Should(BeTrue())
		}
		if until() {
			return
		}
	}
}

func TestTwoRotationsFailNoCall(t *testing.T) {
	c := newCluster(t)
	replicas := []*replica{c.newReplica(t), c.newReplica(t)}
	c.start(t, replicas[0], true)
	c.start(t, replicas[1], false)
	c.waitReady(replicas...)
	c.Eventually(c.config.inForce).WithTimeout(patience).ShouldNot(BeEmpty())
	first := c.read(t.Context())

	callers := []*caller{c.call(t, replicas[0]), c.call(t, replicas[1])}
	done := func() bool { return c.events.count(ReasonCADropped) == 2 }
	c.pass(6*time.Hour, 30*time.Second, callers, replicas, done)
	c.Expect(done()).To(BeTrue(), "two rotations within six hours; events: %v", c.events.all())

	for i, caller := range callers {
		t.Logf("replica %d: %d calls", i, caller.count())
		c.Expect(caller.failures()).To(BeEmpty())
	}
	last := c.read(t.Context())
	c.Expect(last.trusts(first.signing.cert)).To(BeFalse())
	c.Expect(c.events.all()).To(Equal([]string{
		"Normal " + ReasonCACreated,
		"Normal " + ReasonCARotationStarted, "Normal " + ReasonCASwitched, "Normal " + ReasonCADropped,
		"Normal " + ReasonCARotationStarted, "Normal " + ReasonCASwitched, "Normal " + ReasonCADropped,
	}))
	for _, r := range replicas {
		c.Eventually(func() bool { return r.served.Load().signer.Equal(last.signing.cert) }).WithTimeout(patience).Should(BeTrue())
	}
	c.Eventually(func() string { return string(c.config.inForce()[0].bundle) }).WithTimeout(patience).Should(Equal(string(last.bundle())))
}

// damages are ways in which the Secret is damaged by hand, each given an old copy of it.
var damages = map[string]struct {
	cause string
	do    func(ctx context.Context, c *cluster, old *corev1.Secret) error
}{
	"deleted": {causeDeleted, func(ctx context.Context, c *cluster, _ *corev1.Secret) error {
		return c.secrets.Delete(ctx, secretName, metav1.DeleteOptions{})
	}},
	"replaced by an old copy": {causeReplaced, func(ctx context.Context, c *cluster, old *corev1.Secret) error {
		_, err := c.secrets.Update(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Data: old.Data}, metav1.UpdateOptions{})
		return err
	}},
	"filled with garbage": {causeDamaged, func(ctx context.Context, c *cluster, _ *corev1.Secret) error {
		_, err := c.secrets.Update(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName},
			Data: map[string][]byte{keyCert: []byte("garbage"), "other": {0, 1}}}, metav1.UpdateOptions{})
		return err
	}},
	"robbed of its key": {causeDamaged, func(ctx context.Context, c *cluster, _ *corev1.Secret) error {
		_, err := c.secrets.Patch(ctx, secretName, types.MergePatchType, []byte(`{"data":{"ca.key":null}}`), metav1.PatchOptions{})
		return err
	}},
	"replaced by the state of another cluster": {causeReplaced, func(ctx context.Context, c *cluster, _ *corev1.Secret) error {
		foreign, err := newCA(begin, 100*time.Hour, 0)
		if err != nil {
			return err
		}
		data, err := (&state{revision: 1000, signing: foreign}).encode()
		if err != nil {
			return err
		}
		_, err = c.secrets.Update(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Data: data}, metav1.UpdateOptions{})
		return err
	}},
}

// TestADamagedSecretHealsWithoutAFailedCall damages the Secret in each way at each step of a rotation. The clock stands
// still meanwhile, so what heals it is the watch.
func TestADamagedSecretHealsWithoutAFailedCall(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			replicas := []*replica{c.newReplica(t), c.newReplica(t)}
			c.start(t, replicas[0], true)
			c.start(t, replicas[1], false)
			c.waitReady(replicas...)
			c.Eventually(c.config.inForce).WithTimeout(patience).ShouldNot(BeEmpty())
			old, err := c.secrets.Get(t.Context(), secretName, metav1.GetOptions{})
			c.Expect(err).NotTo(HaveOccurred())
			callers := []*caller{c.call(t, replicas[0]), c.call(t, replicas[1])}

			for i, reason := range []string{ReasonCARotationStarted, ReasonCASwitched, ReasonCADropped, ReasonCARotationStarted} {
				reached := func() bool { return c.events.count(reason) > i/3 }
				c.pass(3*time.Hour, time.Minute, callers, replicas, reached)
				c.Expect(reached()).To(BeTrue(), "events: %v", c.events.all())
				before := c.read(t.Context())
				for _, r := range replicas {
					c.Eventually(func() int64 { return r.known.Load().revision }).WithTimeout(patience).Should(Equal(before.revision))
				}

				c.Expect(damage.do(t.Context(), c, old)).To(Succeed())
				c.Eventually(func(g Gomega) {
					after := c.read(t.Context())
					g.Expect(after).NotTo(BeNil())
					g.Expect(after.revision).To(BeNumerically(">=", before.revision))
					g.Expect(after.signing.equal(before.signing)).To(BeTrue())
					g.Expect(after.next.equal(before.next)).To(BeTrue())
					for _, cert := range before.trusted() {
						g.Expect(after.trusts(cert)).To(BeTrue())
					}
					// The one that restored may not have recorded it yet.
					g.Expect(c.events.count(ReasonStateRestored)).To(Equal(i + 1))
				}).WithTimeout(patience).Should(Succeed(), "after %s", reason)
				// Both see callers through the healed state.
				c.pass(2*time.Minute, time.Minute, callers, replicas, func() bool { return false })
			}
			c.Expect(c.events.count(ReasonStateNotRestored)).To(BeZero())
			for i, caller := range callers {
				t.Logf("replica %d: %d calls", i, caller.count())
				c.Expect(caller.failures()).To(BeEmpty())
			}
		})
	}
}

func TestManagersThatStartAtOnceCreateOneCA(t *testing.T) {
	for range 5 {
		c := newCluster(t)
		var replicas []*replica
		var ready sync.WaitGroup
		begun := make(chan struct{})
		for range 4 {
			r := c.newReplica(t)
			replicas = append(replicas, r)
			ready.Go(func() {
				<-begun
				if err := r.rotator.sync(t.Context()); err != nil {
					t.Errorf("rotate: %v", err)
				}
			})
		}
		close(begun)
		ready.Wait()
		stored := c.read(t.Context())
		for _, r := range replicas {
			c.Expect(r.known.Load().equal(stored)).To(BeTrue())
			c.Expect(string(r.rotator.Bundle())).To(Equal(string(stored.bundle())))
		}
		c.Expect(c.events.count(ReasonCACreated)).To(Equal(1))
	}
}

// TestACrashAtAnyWriteOfARotationFailsNoCall lets the elected replica crash at each write, before the API server has it or
// after. Another one is elected, and the crashed one starts anew without memory; at every third write, both do.
func TestACrashAtAnyWriteOfARotationFailsNoCall(t *testing.T) {
	for _, at := range []crash{beforeWrite, afterWrite} {
		t.Run(string(at), func(t *testing.T) {
			c := newCluster(t)
			replicas := []*replica{c.newReplica(t), c.newReplica(t)}
			elected, crashes, crashedAt := 0, 0, int64(-1)
			// Rounds are made by hand: each replica does what its loops would do. The last step of the second rotation is
			// revision 7.
			for round := 0; c.read(t.Context()).revisionOrZero() < 7; round++ {
				c.Expect(round).To(BeNumerically("<", 2000), "the second rotation has not ended: %v", c.events.all())
				c.clock.Step(10 * time.Second)
				// Each write is made to crash once.
				stored := c.read(t.Context()).revisionOrZero()
				if stored > crashedAt {
					replicas[elected].faults.arm(at)
				}
				err := replicas[elected].rotator.sync(t.Context())
				if replicas[elected].faults.down() {
					c.Expect(err).To(MatchError(errCrashed))
					crashes, crashedAt = crashes+1, stored
					replicas[elected] = c.newReplica(t)
					elected = 1 - elected
					if crashes%3 == 0 {
						replicas[elected] = c.newReplica(t)
					}
				} else {
					c.Expect(err).NotTo(HaveOccurred())
					if bundle := replicas[elected].rotator.Bundle(); bundle != nil {
						c.config.apply(bundle)
					}
				}
				for i, r := range replicas {
					// One without a CA yet has to wait for it.
					if err := r.check(t.Context(), true); r.known.Load() != nil {
						c.Expect(err).NotTo(HaveOccurred())
						c.Expect(c.trustedBy(r.served.Load().tls.Leaf)).To(Succeed(),
							"replica %d, after %v and %d crashes", i, c.clock.Now().Sub(begin), crashes)
					}
				}
			}
			c.Expect(crashes).To(Equal(7))
			t.Logf("two rotations with %d crashes in %v", crashes, c.clock.Now().Sub(begin))
		})
	}
}

func (s *state) revisionOrZero() int64 {
	if s == nil {
		return 0
	}
	return s.revision
}

// TestAReplicaWithoutMemoryNeverServesWhatIsNotInForce starts an elected replica while the Secret is damaged, beside one
// that remembers and notices soon, or so late that the elected one has gone on without it.
func TestAReplicaWithoutMemoryNeverServesWhatIsNotInForce(t *testing.T) {
	for name, damage := range damages {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late: %t", name, late), func(t *testing.T) {
				c := newCluster(t)
				old := c.newReplica(t)
				c.Expect(old.rotator.sync(t.Context())).To(Succeed())
				copied, err := c.secrets.Get(t.Context(), secretName, metav1.GetOptions{})
				c.Expect(err).NotTo(HaveOccurred())
				// A whole rotation makes the copy one whose CA is trusted no more.
				for c.events.count(ReasonCADropped) == 0 {
					c.clock.Step(time.Minute)
					c.Expect(old.rotator.sync(t.Context())).To(Succeed())
					c.config.apply(old.rotator.Bundle())
				}
				c.clock.Step(2 * lag)
				c.Expect(old.check(t.Context(), true)).To(Succeed())
				signer := old.served.Load().signer
				c.Expect(damage.do(t.Context(), c, copied)).To(Succeed())

				fresh := c.newReplica(t)
				trusted := func(step string) {
					for _, r := range []*replica{old, fresh} {
						if leaf := r.served.Load(); leaf != nil {
							c.Expect(c.trustedBy(leaf.tls.Leaf)).To(Succeed(), step)
						}
					}
				}
				freshRound := func(step string) {
					_ = fresh.check(t.Context(), true)
					trusted(step + ", the fresh replica has read the Secret")
					c.Expect(fresh.rotator.sync(t.Context())).To(Succeed())
					if bundle := fresh.rotator.Bundle(); bundle != nil {
						// Whatever it hands out must keep the CA of the other one.
						c.Expect(parseTrust([][]byte{bundle}).covers(signer)).To(BeTrue())
						c.config.apply(bundle)
					}
					trusted(step + ", the fresh replica has been elected")
				}
				freshRound("at once")
				c.Expect(fresh.Ready()).NotTo(Succeed())
				c.Expect(fresh.rotator.Bundle()).To(BeNil())
				if late {
					c.clock.Step(fresh.opts.restoreTime())
					freshRound("later")
					c.Expect(fresh.rotator.Bundle()).NotTo(BeNil())
				}
				c.Expect(old.check(t.Context(), true)).To(Succeed())
				trusted("the one that remembers has noticed")
				for range 5 {
					c.clock.Step(lag)
					freshRound("much later")
					c.Expect(old.check(t.Context(), true)).To(Succeed())
					trusted("much later")
				}
				c.Expect(fresh.Ready()).To(Succeed())
				c.Expect(old.served.Load().signer.Equal(fresh.served.Load().signer)).To(BeTrue())
				if late {
					c.Expect(c.events.count(ReasonStateRestored) + c.events.count(ReasonCAAdopted)).To(BeNumerically(">=", 1))
				} else {
					c.Expect(c.events.count(ReasonStateRestored)).To(Equal(1))
					c.Expect(c.events.count(ReasonCAAdopted)).To(BeZero())
					c.Expect(old.served.Load().signer.Equal(signer)).To(BeTrue())
				}
			})
		}
	}
}

// TestAReplicaThatWasAwayForLongGivesWay lets a replica come back whose CA nobody trusts any more.
func TestAReplicaThatWasAwayForLongGivesWay(t *testing.T) {
	c := newCluster(t)
	away, there := c.newReplica(t), c.newReplica(t)
	c.Expect(there.rotator.sync(t.Context())).To(Succeed())
	c.config.apply(there.rotator.Bundle())
	for _, r := range []*replica{away, there} {
		c.Expect(r.check(t.Context(), true)).To(Succeed())
	}
	for c.events.count(ReasonCADropped) < 2 {
		c.clock.Step(time.Minute)
		c.Expect(there.rotator.sync(t.Context())).To(Succeed())
		c.config.apply(there.rotator.Bundle())
		// Cut off from the API server, it can renew for a while only.
		_ = away.renew(t.Context())
	}
	c.Expect(away.Ready()).NotTo(Succeed())
	c.Expect(away.check(t.Context(), true)).To(Succeed())
	c.Expect(there.check(t.Context(), true)).To(Succeed())
	c.Expect(away.Ready()).To(Succeed())
	c.Expect(c.trustedBy(away.served.Load().tls.Leaf)).To(Succeed())
	c.Expect(c.events.count(ReasonStateRestored)).To(BeZero())
}

// TestNothingIsSwitchedBeforeItIsConfirmed holds the configurations back in each way.
func TestNothingIsSwitchedBeforeItIsConfirmed(t *testing.T) {
	c := newCluster(t)
	r := c.newReplica(t)
	round := func(step time.Duration) {
		c.clock.Step(step)
		_ = r.rotator.sync(t.Context())
		_ = r.check(t.Context(), true)
	}
	round(0)
	n := r.rotator.Bundle()
	c.config.apply(n)
	round(80 * time.Minute)
	c.Expect(c.events.count(ReasonCARotationStarted)).To(Equal(1))
	both := r.rotator.Bundle()
	c.Expect(bytes.Count(both, []byte("BEGIN"))).To(Equal(2))

	settle := r.opts.SettleMargin
	round(settle)
	round(settle)
	c.Expect(c.events.count(ReasonCASwitched)).To(BeZero(), "the bundle was never applied")
	c.config.apply(both)
	round(time.Second)
	round(settle - time.Second)
	c.Expect(c.events.count(ReasonCASwitched)).To(BeZero(), "the margin is not over")
	c.config.apply(n)
	round(time.Second)
	c.config.apply(both)
	round(time.Second)
	round(settle - time.Second)
	c.Expect(c.events.count(ReasonCASwitched)).To(BeZero(), "the bundle was away for a moment")
	c.config.fail(errors.New("no answer"))
	round(time.Second)
	c.config.fail(nil)
	round(time.Second)
	c.Expect(c.events.count(ReasonCASwitched)).To(BeZero(), "the configurations could not be read for a moment")
	round(settle)
	c.Expect(c.events.count(ReasonCASwitched)).To(Equal(1))
	c.Expect(string(r.rotator.Bundle())).To(Equal(string(both)))
}

// TestASecretThatCannotBeWrittenIsServedFromMemory makes the Secret immutable.
func TestASecretThatCannotBeWrittenIsServedFromMemory(t *testing.T) {
	c := newCluster(t)
	r := c.newReplica(t)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.config.apply(r.rotator.Bundle())
	c.Expect(r.check(t.Context(), true)).To(Succeed())
	c.Expect(c.secrets.Delete(t.Context(), secretName, metav1.DeleteOptions{})).To(Succeed())
	_, err := c.secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName},
		Data: map[string][]byte{"other": {1}}, Immutable: ptr.To(true)}, metav1.CreateOptions{})
	c.Expect(err).NotTo(HaveOccurred())

	first := r.served.Load()
	for range 30 {
		c.clock.Step(time.Minute)
		c.Expect(r.check(t.Context(), true)).To(MatchError(ContainSubstring("immutable")))
		c.Expect(r.Ready()).To(Succeed())
		c.Expect(c.trustedBy(r.served.Load().tls.Leaf)).To(Succeed())
	}
	c.Expect(r.served.Load()).NotTo(BeIdenticalTo(first), "the leaf is renewed from memory")
	c.Expect(c.events.count(ReasonStateNotRestored)).To(Equal(1), "one event, not one for each attempt")

	c.Expect(c.secrets.Delete(t.Context(), secretName, metav1.DeleteOptions{})).To(Succeed())
	c.clock.Step(time.Minute)
	c.Expect(r.check(t.Context(), true)).To(Succeed())
	c.Expect(c.read(t.Context()).equal(r.known.Load())).To(BeTrue())
}

// TestASecretThatIsDamagedAgainAtOnceIsRestoredWithTheNextCheck has somebody write the Secret again and again.
func TestASecretThatIsDamagedAgainAtOnceIsRestoredWithTheNextCheck(t *testing.T) {
	c := newCluster(t)
	r := c.newReplica(t)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	for range 3 {
		c.clock.Step(r.opts.CheckInterval)
		for range 3 {
			c.Expect(c.secrets.Delete(t.Context(), secretName, metav1.DeleteOptions{})).To(Succeed())
			c.Expect(r.check(t.Context(), true)).To(Succeed())
			if c.read(t.Context()) == nil {
				break
			}
		}
		c.Expect(c.read(t.Context())).To(BeNil(), "two attempts in one interval")
		c.clock.Step(r.opts.CheckInterval)
		c.Expect(r.check(t.Context(), false)).To(Succeed())
		c.Expect(c.read(t.Context()).equal(r.known.Load())).To(BeTrue())
	}
	c.Expect(c.events.count(ReasonStateRestored)).To(Equal(6))
}

// TestWhatWasTrustedBeforeTheElectionStaysTrusted moves from certificates that something else had issued.
func TestWhatWasTrustedBeforeTheElectionStaysTrusted(t *testing.T) {
	c := newCluster(t)
	other := mustCA(t, begin)
	c.config.apply(bundleOf(other))
	r := c.newReplica(t)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(r.rotator.Bundle()).To(BeNil(), "somebody may remember the CA")
	c.clock.Step(r.opts.restoreTime())
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(r.check(t.Context(), true)).To(MatchError(ContainSubstring("wait for the webhook configurations to trust")))
	bundle := r.rotator.Bundle()
	c.Expect(parseTrust([][]byte{bundle}).covers(other.cert)).To(BeTrue())
	c.config.apply(bundle)
	c.Expect(r.check(t.Context(), true)).To(MatchError(ContainSubstring("has been trusted for")))
	c.clock.Step(r.opts.restoreTime())
	c.Expect(r.check(t.Context(), true)).To(Succeed())
	c.Expect(r.Ready()).To(Succeed())
	c.clock.Step(r.opts.retention() + time.Second)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(parseTrust([][]byte{r.rotator.Bundle()}).covers(other.cert)).To(BeFalse())
}

// A restore of the store takes the webhook configurations back, and nothing may tell those who apply the bundle of it: the next
// CA would wait for its trust until the last one has ended.
func TestABundleThatWasTakenBackIsHandedOutAgain(t *testing.T) {
	c := newCluster(t)
	r := c.newReplica(t)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	changes := r.rotator.Subscribe()
	c.Expect(changes).To(Receive())
	c.config.apply(r.rotator.Bundle())
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(changes).NotTo(Receive(), "all is as it should be")
	earlier := r.rotator.Bundle()
	c.clock.Step(r.opts.CALife * 2 / 3)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(changes).To(Receive(), "the next CA is to be trusted")
	c.config.apply(r.rotator.Bundle())

	c.config.apply(earlier)
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(changes).To(Receive())
	c.config.apply(r.rotator.Bundle())
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	c.Expect(changes).NotTo(Receive())
}

func TestTheSecretIsLabelledAndOpaque(t *testing.T) {
	c := newCluster(t)
	r := c.newReplica(t)
	r.opts.Labels = map[string]string{"app.kubernetes.io/name": "fencedlease"}
	c.Expect(r.rotator.sync(t.Context())).To(Succeed())
	secret, err := c.secrets.Get(t.Context(), secretName, metav1.GetOptions{})
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(secret.Type).To(Equal(corev1.SecretTypeOpaque))
	c.Expect(secret.Labels).To(Equal(r.opts.Labels))
	c.Expect(fmt.Sprint(secret.Data)).NotTo(BeEmpty())
}
