"""A page of Python's for uWSGI: what it was told, and how long the body was."""


def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8"), ("X-Powered-By", "uwsgi")])
    text = "{REQUEST_METHOD} {REQUEST_URI}\n".format(**environ)
    return [text.encode(), "body: {} bytes\n".format(len(body)).encode()]
