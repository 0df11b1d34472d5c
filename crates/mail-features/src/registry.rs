//! Every feature, one line each; and the mail area's entry points for the server.

use crate::build::{self as builder, Feature};
use crate::plan::MailPlan;
use conf_schema::{Area, Block, Complaint, Cx, Schema, Table};

/// All features, in the order in which nginx's modules look at a server: complaints come in it.
static FEATURES: &[&dyn Feature] = &[
    &crate::ssl::Ssl,
    &crate::pop3::Pop3,
    &crate::imap::Imap,
    &crate::smtp::Smtp,
    &crate::auth_http::AuthHttpFeature,
    &crate::proxy::Proxy,
    &crate::realip::Realip,
    &crate::resolver::Resolver,
];

/// The tables of the engine and of every feature.
pub fn tables() -> Vec<Table> {
    builder::tables(FEATURES)
}

/// Makes the area's variables, of which there are none, known to a configuration that is about to be checked.
pub fn offer_variables(cx: &mut Cx) {
    cx.get::<crate::Variables>();
}

/// Builds the plan of a checked mail block. Warnings are added to `cx.warnings`.
///
/// # Errors
/// What is wrong with the whole: servers without a protocol, an address, an authentication server, or a certificate.
pub fn build(schema: &Schema, mail: &mut Block<'_>, cx: &mut Cx) -> Result<MailPlan, Vec<Complaint>> {
    builder::build(FEATURES, mail, cx, &|feature| schema.table_index(feature, Area::Mail))
}
