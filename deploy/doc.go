// Package deploy holds the configurations of docker-compose.yml, and the tests
// that keep them and the compose file true.
package deploy
