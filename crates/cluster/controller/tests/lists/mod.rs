//! An API server with one GatewayClass, one Gateway, one HTTPRoute and its Service; its watches are silent.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

const GROUP: &str = "gateway.networking.k8s.io/v1";
const PLURALS: &[&str] = &["gatewayclasses", "gateways", "httproutes"];

/// Starts the API server, and returns its URL. The Gateway listens on `port`, the Service's pod on `backend`.
///
/// With `ingresses`, the Service has two Ingresses, too; the server refuses the snippet of one of them.
pub fn serve(port: u16, backend: u16, ingresses: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || answer(stream, port, backend, ingresses));
        }
    });
    url
}

/// Answers the requests of one connection.
fn answer(stream: TcpStream, port: u16, backend: u16, ingresses: bool) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let target = line.split(' ').nth(1)?.to_owned();
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).ok()?;
        }
        if target.contains("watch=") {
            write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                .ok()?;
            // Silent until the client ends the connection.
            reader.read_line(&mut line).ok()?;
            return None;
        }
        let body = body(&target, port, backend, ingresses).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        writer.write_all(format!("{head}{body}").as_bytes()).ok()?;
    }
}

fn body(target: &str, port: u16, backend: u16, ingresses: bool) -> Value {
    let path = target.split('?').next().unwrap_or("");
    let name = path.rsplit('/').next().unwrap_or("");
    // "/apis/GROUP/VERSION" without a resource.
    if path.starts_with("/apis/") && path.split('/').count() == 4 {
        let one = |name: &&str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "x", "verbs": []});
        let resources: Vec<Value> = PLURALS.iter().filter(|_| path.ends_with(GROUP)).map(one).collect();
        return json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": resources});
    }
    let object = |kind: &str, name: &str, spec: Value| {
        let namespace = (kind != "GatewayClass").then_some("shop");
        json!({"apiVersion": GROUP, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    };
    let items = match name {
        "gatewayclasses" => {
            vec![object("GatewayClass", "tidegate", json!({"controllerName": "tidegate.invalid/gateway-controller"}))]
        }
        "gateways" => {
            let listener = json!({"name": "http", "port": port, "protocol": "HTTP"});
            let address = json!({"type": "IPAddress", "value": "127.0.0.1"});
            let spec = json!({"gatewayClassName": "tidegate", "listeners": [listener], "addresses": [address]});
            vec![object("Gateway", "public", spec)]
        }
        "httproutes" => {
            let rules = json!([{"backendRefs": [{"name": "api", "port": 80}]}]);
            let spec = json!({"parentRefs": [{"name": "public"}], "hostnames": ["shop.test"], "rules": rules});
            vec![object("HTTPRoute", "shop", spec)]
        }
        "ingressclasses" if ingresses => {
            let spec = json!({"controller": "tidegate.invalid/ingress-controller"});
            vec![json!({"metadata": {"name": "tidegate"}, "spec": spec})]
        }
        "ingresses" if ingresses => {
            let one = |name: &str, snippet: &str| {
                let annotations = json!({"nginx.ingress.kubernetes.io/configuration-snippet": snippet});
                let backend = json!({"service": {"name": "api", "port": {"number": 80}}});
                let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
                let rules = json!([{"host": format!("{name}.test"), "http": {"paths": paths}}]);
                json!({"metadata": {"name": name, "namespace": "shop", "annotations": annotations},
                    "spec": {"ingressClassName": "tidegate", "rules": rules}})
            };
            vec![one("good", "proxy_read_timeout 7s;"), one("bad", "proxy_read_timeout banana;")]
        }
        "services" => {
            let spec = json!({"ports": [{"name": "web", "port": 80, "targetPort": 8080}]});
            vec![json!({"metadata": {"name": "api", "namespace": "shop"}, "spec": spec})]
        }
        "endpointslices" => {
            let labels = json!({"kubernetes.io/service-name": "api"});
            let ports = json!([{"name": "web", "port": backend, "protocol": "TCP"}]);
            let endpoints = json!([{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]);
            let metadata = json!({"name": "api-1", "namespace": "shop", "labels": labels});
            vec![json!({"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints})]
        }
        _ => Vec::new(),
    };
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}
