# The collector and the session commands, without a shell and without root.
#
#   docker build -t agenttrace .
#   docker run --rm -v sessions:/var/lib/agenttrace agenttrace ls
#
# By default "collect" listens on the loopback of the container. Mount a configuration
# and pass it with --config, as docker-compose.yml does, or run with --network host.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/agenttrace ./cmd/agenttrace \
 && mkdir -p /out/store /out/tmp && chmod 0700 /out/store && chmod 1777 /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/agenttrace /agenttrace
COPY --from=build --chown=10001:10001 /out/store /var/lib/agenttrace
COPY --from=build --chown=10001:10001 /out/tmp /tmp
USER 10001:10001
ENV AGENTTRACE_STORE=/var/lib/agenttrace/sessions.db
VOLUME /var/lib/agenttrace
EXPOSE 4317 4318
ENTRYPOINT ["/agenttrace"]
CMD ["collect"]
