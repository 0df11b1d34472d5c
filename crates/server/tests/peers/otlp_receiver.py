"""A receiver of OTLP traces made of the Python packages grpcio and opentelemetry-proto, for tests/otel.rs.

Prints the ports of gRPC and HTTP, then a JSON object for every span; ends with its standard input.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

LOCK = threading.Lock()


def value(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(one) for one in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(rows):
    return {row.key: value(row.value) for row in rows}


def unknown(message):
    found = len(UnknownFieldSet(message))
    for field, content in message.ListFields():
        if field.message_type is not None:
            for one in [content] if isinstance(content, Message) else content:
                found += unknown(one)
    return found


def show(request, protocol):
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                shown = {
                    "protocol": protocol,
                    "resource": attributes(resource_spans.resource.attributes),
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "state": span.trace_state,
                    "name": span.name,
                    "kind": trace.Span.SpanKind.Name(span.kind),
                    "status": trace.Status.StatusCode.Name(span.status.code),
                    "flags": span.flags,
                    "attributes": attributes(span.attributes),
                    "unknown_fields": unknown(request),
                }
                with LOCK:
                    print(json.dumps(shown), flush=True)


class Service(service.TraceServiceServicer):
    def Export(self, request, context):
        show(request, "grpc")
        return messages.ExportTraceServiceResponse()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
        show(messages.ExportTraceServiceRequest.FromString(body), "http")
        answer = messages.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    server = grpc.server(ThreadPoolExecutor(4))
    service.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    web = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    print(port, web.server_port, flush=True)
    sys.stdin.read()
    server.stop(grace=None).wait()
    web.shutdown()


main()
