// Package deploy has the configurations that docker-compose.yml uses, and tests of them
// and of the compose file.
package deploy
