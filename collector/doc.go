// Package collector is agenttrace's distribution of the OpenTelemetry Collector: what it is made of ([Components]), the
// configuration it runs without one of the user's, the command ([Command]), and the same collector within a program
// ([Start]).
//
// builder.yaml makes the same distribution with the collector builder, as a start for people who want other components.
package collector
