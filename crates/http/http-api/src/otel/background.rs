//! The exporter's task on the control thread. It outlives its configuration until the last request of that has ended.

use area::background::LocalFuture;
use http_engine::{Background, HttpPlan};
use observe::{ErrorLog, Severity};
use otlp::Exporter;
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub struct Export(pub Arc<Exporter>);

thread_local! {
    /// Exporters whose tasks run, those of replaced configurations included.
    static RUNNING: RefCell<Vec<(Weak<Exporter>, Arc<ErrorLog>)>> = const { RefCell::new(Vec::new()) };
}

impl Background<HttpPlan> for Export {
    fn run(self: Arc<Self>, plan: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            RUNNING.with_borrow_mut(|all| {
                all.retain(|(exporter, _)| exporter.strong_count() > 0);
                all.push((Arc::downgrade(&self.0), log.clone()));
            });
            let exporter = self.0.clone();
            // Detached: the end of this task at a reload must not end the export.
            drop(runtime::task::spawn_local(async move {
                exporter.run(log, || plan.strong_count() == 0).await;
            }));
        })
    }

    fn finish(self: Arc<Self>, limit: Duration) -> Option<LocalFuture<()>> {
        let all = RUNNING.take();
        Some(Box::pin(async move {
            let until = base::clock::now().plus(limit);
            for (exporter, log) in all {
                let Some(exporter) = exporter.upgrade() else { continue };
                let left = Duration::from_micros(until.micros_since(base::clock::now()));
                if runtime::time::with_timeout(left, exporter.flush()).await.is_err() {
                    let n = exporter.queue.held();
                    log.log(Severity::Warn, 0, format_args!("OTel: {n} spans were not exported before the exit"));
                }
                base::clock::update();
            }
        }))
    }
}
