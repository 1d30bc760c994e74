package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// What a state machine's machinery needs to know of an object, whatever its kind.

// Paused is spec.paused.
func (c *Cluster) Paused() bool { return c.Spec.Paused }

// LastStep is status.step; nil when there was no annotation.
func (c *Cluster) LastStep() *string { return c.Status.Step }

// SetLastStep sets status.step.
func (c *Cluster) SetLastStep(value *string) { c.Status.Step = value }

// LastAction is status.lastAction; all zero when no action was ever begun.
func (c *Cluster) LastAction() (kind, target, why string, at metav1.MicroTime) {
	if a := c.Status.LastAction; a != nil {
		return a.Kind, a.Target, a.Why, a.Time
	}
	return "", "", "", metav1.MicroTime{}
}

// SetLastAction sets status.lastAction.
func (c *Cluster) SetLastAction(kind, target, why string, at metav1.MicroTime) {
	c.Status.LastAction = &LastAction{Kind: kind, Target: target, Why: why, Time: at}
}

// Conditions are status.conditions, shared with the object.
func (c *Cluster) Conditions() []metav1.Condition { return c.Status.Conditions }

// WasReady tells whether it was Ready in its present generation or an earlier one.
func (c *Cluster) WasReady() bool { return c.Status.ReadyGeneration > 0 }
