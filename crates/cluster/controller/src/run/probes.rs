//! `/healthz`, `/readyz` and `/metrics` over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::metrics::Metrics;
/// Connections at once at most; the others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// Time for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Source of the controller's objects, as probes and scrapes see it.
pub trait SourceState: Send + Sync {
    /// Returns the objects in memory by kind.
    fn counts(&self) -> Vec<(&'static str, usize)>;

    /// Returns the reason why there is no configuration yet; `None` if the lists are complete.
    fn missing(&self) -> Option<String>;

    /// Returns the reason why changes do not arrive; the server serves on.
    fn outage(&self) -> Option<String> {
        None
    }

    /// Writes metrics of its own.
    fn write_metrics(&self, _out: &mut String) {}
}

/// Answers probes and scrapes until the task is dropped.
pub async fn serve_probes(listener: TcpListener, source: Arc<dyn SourceState>, metrics: Arc<Metrics>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (source, metrics) = (source.clone(), metrics.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(request.method(), request.uri().path(), &*source, &metrics);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).keep_alive(false);
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(slot);
        });
    }
}

fn answer(method: &Method, path: &str, source: &dyn SourceState, metrics: &Metrics) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return response(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
    }
    match path {
        "/healthz" => response(StatusCode::OK, "ok\n".into()),
        "/readyz" => match metrics.is_ready.load(Ordering::Relaxed) {
            // A source that is gone takes no server down: the words are for people, metrics for alerts.
            true => match source.outage() {
                None => response(StatusCode::OK, "ok\n".into()),
                Some(reason) => response(StatusCode::OK, format!("ok, but {reason}\n")),
            },
            false => response(StatusCode::SERVICE_UNAVAILABLE, waiting(source)),
        },
        "/metrics" => response(StatusCode::OK, metrics.text(source)),
        _ => response(StatusCode::NOT_FOUND, "/healthz, /readyz and /metrics\n".into()),
    }
}

/// Says why the controller is not ready.
fn waiting(source: &dyn SourceState) -> String {
    match source.missing() {
        None => "the server has no configuration of the controller yet\n".into(),
        Some(reason) => format!("{reason}\n"),
    }
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use cluster_objects::Kind;
    use serde_json::json;

    use super::super::store::{ObjectStore, WatchChange};
    use super::*;

    #[test]
    fn readiness_names_what_it_waits_for() {
        let (store, metrics) = (ObjectStore::new(vec![Kind::Gateway, Kind::Secret]), Metrics::default());
        let of = |path: &str| answer(&Method::GET, path, &store, &metrics).status().as_u16();
        assert_eq!((of("/healthz"), of("/readyz"), of("/metrics"), of("/x")), (200, 503, 200, 404));
        assert_eq!(answer(&Method::POST, "/healthz", &store, &metrics).status(), 405);
        store.set_absent(Kind::Gateway);
        assert_eq!(waiting(&store), "the lists of these kinds are not complete: Secret\n");
        store.apply(Kind::Secret, "secrets", WatchChange::ListBegins);
        store.apply(Kind::Secret, "secrets", WatchChange::ListEnds);
        assert!(waiting(&store).starts_with("the server has no configuration"));
        metrics.is_ready.store(true, Ordering::Relaxed);
        assert_eq!(of("/readyz"), 200);
    }

    #[test]
    fn metrics_count_objects_by_kind() {
        let (store, metrics) = (ObjectStore::new(vec![Kind::Service]), Metrics::default());
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}});
        store.apply(Kind::Service, "services", WatchChange::Applied(service));
        let text = metrics.text(&store);
        assert!(text.contains("\ntidegate_controller_objects{kind=\"Service\"} 1\n"), "{text}");
        let names = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count(), names);
        assert!(names >= 15, "{text}");
    }

    #[test]
    fn dashboards_and_alerts_name_metrics_that_exist() {
        let text = Metrics::default().text(&ObjectStore::new(vec![Kind::Service]));
        let files = [
            include_str!("../../../../../packaging/grafana/kubernetes.json"),
            include_str!("../../../../../packaging/prometheus/alerts.yml"),
        ];
        for file in files {
            let parts: Vec<&str> = file.split("tidegate_controller_").skip(1).collect();
            assert!(parts.len() >= 2);
            for part in parts {
                let name: String = part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                assert!(text.contains(&format!("# TYPE tidegate_controller_{name} ")), "{name}");
            }
        }
    }
}
