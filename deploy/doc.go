// Package deploy has the configurations that the compose files use, manifests for Kubernetes, and tests of all of them.
package deploy
