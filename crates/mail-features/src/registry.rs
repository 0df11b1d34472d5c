//! List of features, and the mail area's entry points.

use crate::build::{self as builder, Feature};
use crate::plan::MailPlan;
use conf_schema::{Area, Block, Complaint, Cx, Schema, Table};

/// In the order of nginx's modules, which is that of error messages.
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

pub fn tables() -> Vec<Table> {
    builder::tables(FEATURES)
}

/// For a configuration.
pub fn offer_variables(cx: &mut Cx) {
    cx.get::<crate::Variables>();
}

/// Builds the plan of a checked mail block; warnings go to `cx.warnings`. Fails on servers without a protocol, address,
/// authentication server or certificate.
pub fn build(schema: &Schema, mail: &mut Block<'_>, cx: &mut Cx) -> Result<MailPlan, Vec<Complaint>> {
    builder::build(FEATURES, mail, cx, &|feature| schema.table_index(feature, Area::Mail))
}
