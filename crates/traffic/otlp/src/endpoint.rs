//! Addresses of receivers.

use http_client::Url;

/// Ports of receivers that listen for gRPC and for HTTP.
const GRPC_PORT: u16 = 4317;
const HTTP_PORT: u16 = 4318;
/// Path of requests over HTTP, unless configured.
const PATH: &str = "/v1/traces";
/// Path of the method of gRPC.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportProtocol {
    Grpc,
    /// Protobuf in the body of a POST request.
    Http,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub url: Url,
    pub protocol: ExportProtocol,
}

impl Endpoint {
    /// Parses `[http[s]://]host[:port][/path]`. A path means HTTP, as does the protocol; otherwise it is gRPC.
    ///
    /// # Errors
    /// A description of the invalid part.
    pub fn parse(text: &str, protocol: Option<ExportProtocol>) -> Result<Endpoint, &'static str> {
        if text.is_empty() {
            return Err("empty endpoint");
        }
        let prefix = |name: &str| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if prefix("unix:") {
            return Err("a UNIX-domain socket is not supported");
        }
        let whole = if prefix("http://") || prefix("https://") { text.to_string() } else { format!("http://{text}") };
        let mut url = Url::parse(&whole)?;
        let has_path = url.target != "/";
        let protocol = match (protocol, has_path) {
            (Some(ExportProtocol::Grpc), true) => return Err("gRPC needs an endpoint without a path"),
            (Some(given), _) => given,
            (None, true) => ExportProtocol::Http,
            (None, false) => ExportProtocol::Grpc,
        };
        let authority = whole.split_once("://").map_or("", |(_, rest)| rest);
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        if !has_port {
            url.port = if protocol == ExportProtocol::Grpc { GRPC_PORT } else { HTTP_PORT };
        }
        match protocol {
            ExportProtocol::Grpc => url.target = METHOD.into(),
            ExportProtocol::Http if !has_path => url.target = PATH.into(),
            ExportProtocol::Http => {}
        }
        Ok(Endpoint { url, protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed() {
        for (text, protocol, want) in [
            ("localhost:4317", None, (ExportProtocol::Grpc, false, "localhost", 4317, METHOD)),
            ("127.0.0.1", None, (ExportProtocol::Grpc, false, "127.0.0.1", 4317, METHOD)),
            ("[::1]", None, (ExportProtocol::Grpc, false, "::1", 4317, METHOD)),
            ("[::1]:99", None, (ExportProtocol::Grpc, false, "::1", 99, METHOD)),
            ("HTTP://a:80", None, (ExportProtocol::Grpc, false, "a", 80, METHOD)),
            ("https://a:4317/", None, (ExportProtocol::Grpc, true, "a", 4317, METHOD)),
            ("http://a:4318/v1/traces", None, (ExportProtocol::Http, false, "a", 4318, "/v1/traces")),
            ("https://a/otlp?x=y", None, (ExportProtocol::Http, true, "a", 4318, "/otlp?x=y")),
            ("https://a", Some(ExportProtocol::Http), (ExportProtocol::Http, true, "a", 4318, "/v1/traces")),
            ("a:1", Some(ExportProtocol::Grpc), (ExportProtocol::Grpc, false, "a", 1, METHOD)),
        ] {
            let got = Endpoint::parse(text, protocol).expect(text);
            let url = &got.url;
            assert_eq!((got.protocol, url.tls, url.host.as_str(), url.port, url.target.as_str()), want, "{text}");
        }
    }

    #[test]
    fn invalid_endpoints() {
        for (text, protocol) in [
            ("", None),
            ("unix:/x", None),
            ("ftp://a", None),
            ("a:b", None),
            ("a:1/x", Some(ExportProtocol::Grpc)),
            ("u@a:1", None),
            ("http://", None),
        ] {
            assert!(Endpoint::parse(text, protocol).is_err(), "{text}");
        }
    }
}
