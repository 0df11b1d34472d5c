//! Serves a directory with quiche and tokio-quiche, as a peer for measurements. Uses one thread. Sends no Retry, as the other servers.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use rust_server::{Arguments, Failure, file};
use std::path::Path;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio_quiche::http3::driver::{H3Event, IncomingH3Headers, OutboundFrame, ServerH3Event};
use tokio_quiche::http3::settings::Http3Settings;
use tokio_quiche::metrics::DefaultMetrics;
use tokio_quiche::quiche::h3::{Header, NameValue};
use tokio_quiche::settings::{CertificateKind, Hooks, QuicSettings, TlsCertificatePaths};
use tokio_quiche::{ConnectionParams, ServerH3Controller, ServerH3Driver};

async fn answer(request: IncomingH3Headers, root: Arc<Path>) -> Option<()> {
    let IncomingH3Headers { headers, send: mut stream, .. } = request;
    let path = headers.iter().find(|header| header.name() == b":path")?;
    let found = file(&root, std::str::from_utf8(path.value()).ok()?);
    let status = if found.is_some() { "200" } else { "404" };
    let body = Bytes::from(found.unwrap_or_default());
    let length = body.len().to_string();
    let head = vec![Header::new(b":status", status.as_bytes()), Header::new(b"content-length", length.as_bytes())];
    stream.send(OutboundFrame::Headers(head, None)).await.ok()?;
    stream.send(OutboundFrame::Body(body, true)).await.ok()
}

async fn serve(mut controller: ServerH3Controller, root: Arc<Path>) {
    while let Some(event) = controller.event_receiver_mut().recv().await {
        match event {
            ServerH3Event::Headers { incoming_headers, .. } => {
                tokio::spawn(answer(incoming_headers, root.clone()));
            }
            ServerH3Event::Core(H3Event::ConnectionError(_) | H3Event::ConnectionShutdown(_)) => return,
            ServerH3Event::Core(_) => {}
        }
    }
}

async fn run() -> Result<(), Failure> {
    let Arguments { address, root, certificate, key } = Arguments::read()?;
    let socket = UdpSocket::bind(&address).await?;
    let mut settings = QuicSettings::default();
    settings.disable_client_ip_validation = true;
    let paths = TlsCertificatePaths { cert: &certificate, private_key: &key, kind: CertificateKind::X509 };
    let parameters = ConnectionParams::new_server(settings, paths, Hooks::default());
    let mut listeners = tokio_quiche::listen([socket], parameters, DefaultMetrics)?;
    let root: Arc<Path> = Path::new(&root).into();
    while let Some(connection) = listeners[0].next().await {
        let Ok(connection) = connection else { continue };
        let (driver, controller) = ServerH3Driver::new(Http3Settings::default());
        connection.start(driver);
        tokio::spawn(serve(controller, root.clone()));
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}
