"""A gRPC service and its client, without generated code: messages are UTF-8 text.

    service.py serve ADDRESS      serves (unix:grpc.sock)
    service.py ask ADDRESS        makes one call of every kind, and says what came of it

`Say` answers a message with a message, `Count` with many, `Sum` adds many up, `Talk` answers each as it comes, and `Fail` fails.
"""

import os
import sys
from concurrent import futures

import grpc

NAME = "example.Service"


def text(data):
    return data.decode()


def data(words):
    return words.encode()


class Service:
    def say(self, request, context):
        context.set_trailing_metadata((("x-asked-by", context.peer().split(":")[0]),))
        return "hello, " + request

    def count(self, request, context):
        for number in range(int(request)):
            yield str(number)

    def sum(self, requests, context):
        return str(sum(int(request) for request in requests))

    def talk(self, requests, context):
        for request in requests:
            yield request.upper()

    def fail(self, request, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, request)


def serve(address):
    service = Service()
    kinds = {
        "Say": (grpc.unary_unary_rpc_method_handler, service.say),
        "Count": (grpc.unary_stream_rpc_method_handler, service.count),
        "Sum": (grpc.stream_unary_rpc_method_handler, service.sum),
        "Talk": (grpc.stream_stream_rpc_method_handler, service.talk),
        "Fail": (grpc.unary_unary_rpc_method_handler, service.fail),
    }
    handlers = {name: kind(act, text, data) for name, (kind, act) in kinds.items()}
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    # The socket is for whoever the web server runs as.
    os.umask(0)
    if not server.add_insecure_port(address):
        raise SystemExit(f"cannot listen on {address}")
    server.start()
    server.wait_for_termination()


def ask(address):
    with grpc.insecure_channel(address) as channel:
        def method(kind, name):
            return kind(f"/{NAME}/{name}", data, text)

        say = method(channel.unary_unary, "Say")
        print(say("world", timeout=20))
        print(len(say("x" * 1_000_000, timeout=20)))
        print(" ".join(method(channel.unary_stream, "Count")("5", timeout=20)))
        print(method(channel.stream_unary, "Sum")(iter(map(str, range(1000))), timeout=20))
        print(" ".join(method(channel.stream_stream, "Talk")(iter(["a", "b", "c"]), timeout=20)))
        try:
            method(channel.unary_unary, "Fail")("not now", timeout=20)
        except grpc.RpcError as error:
            print(error.code().name, error.details())
        try:
            method(channel.unary_unary, "Nothing")("", timeout=20)
        except grpc.RpcError as error:
            print(error.code().name)


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](sys.argv[2])
