//! Routes in the form of the model.

use cluster_model::{Backend, Location};
use cluster_objects::{Kind, ObjectName};

use crate::attach::Attachment;
use crate::conditions::Fault;

/// A route with its parents and its rules.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub kind: Kind,
    pub name: ObjectName,
    pub generation: i64,
    pub attachments: Vec<Attachment>,
    pub compiled: Compiled,
}

/// Rules in the form of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compiled {
    /// Why the route is served nowhere.
    pub accepted: Option<Fault>,
    /// Rules that are left out or answered with an error, while others are served.
    pub partially: Option<Fault>,
    pub resolved: Option<Fault>,
    /// Of routes over HTTP, in order of rules and matches.
    pub locations: Vec<Location>,
    /// Of other routes.
    pub backends: Vec<Backend>,
    /// Fields that have no effect.
    pub leftovers: Vec<String>,
}
