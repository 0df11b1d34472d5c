//! An area (`http`, `stream`, `mail`) as the process sees it: sockets to open, certificates, work on the control thread.

use crate::background::{Background, LocalFuture};
use net::listen::ListenSpec;
use observe::ErrorLog;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tls::ServerRules;

pub type NamedRules<'a> = (&'a [String], &'a Arc<ServerRules>);

/// The plan of an area. The process treats all areas alike through this trait; a new one is a line in its list.
pub trait AreaPlan: Send + Sync {
    fn specs(&self) -> Box<dyn Iterator<Item = &ListenSpec> + '_>;
    /// Tells whether connections to servers are made from addresses that are not this machine's.
    fn transparent(&self) -> bool {
        false
    }
    fn tls(&self) -> Vec<NamedRules<'_>>;
    /// Work beside sessions.
    fn work(self: Arc<Self>) -> Vec<Box<dyn Work>> {
        Vec::new()
    }
}

/// One [`Background`] with its plan.
pub trait Work {
    fn prepare(&self) -> LocalFuture<()>;
    fn unsettled(&self) -> Vec<String>;
    fn run(&self, log: &Arc<ErrorLog>) -> LocalFuture<()>;
    fn finish(&self, limit: Duration) -> Option<LocalFuture<()>>;
}

struct OfPlan<P>(Arc<P>, Arc<dyn Background<P>>);

impl<P: Send + Sync + 'static> Work for OfPlan<P> {
    fn prepare(&self) -> LocalFuture<()> {
        self.1.clone().prepare(self.0.clone())
    }
    fn unsettled(&self) -> Vec<String> {
        self.1.unsettled(&self.0)
    }
    fn run(&self, log: &Arc<ErrorLog>) -> LocalFuture<()> {
        let plan: Weak<P> = Arc::downgrade(&self.0);
        self.1.clone().run(plan, log.clone())
    }
    fn finish(&self, limit: Duration) -> Option<LocalFuture<()>> {
        self.1.clone().finish(limit)
    }
}

pub fn area_work<P: Send + Sync + 'static>(plan: &Arc<P>, all: &[Arc<dyn Background<P>>]) -> Vec<Box<dyn Work>> {
    all.iter().map(|one| Box::new(OfPlan(plan.clone(), one.clone())) as Box<dyn Work>).collect()
}
