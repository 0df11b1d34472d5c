//! List of features, and the mail area's entry points.

use crate::build::{self as builder, Feature};
use crate::plan::MailPlan;
use conf_schema::{CheckedBlock, Complaint, ContextArea, Cx, FeatureTable, Schema};

/// In the order of nginx's modules, which is that of error messages.
static FEATURES: &[&dyn Feature] = &[
    &crate::ssl::Ssl,
    &crate::pop3::Pop3,
    &crate::imap::Imap,
    &crate::smtp::Smtp,
    &crate::auth_http::AuthHttpFeature,
    &crate::proxy::MailProxyRules,
    &crate::realip::Realip,
    &crate::resolver::MailResolver,
];

pub fn mail_tables() -> Vec<FeatureTable> {
    builder::feature_tables(FEATURES)
}

/// For a configuration.
pub fn offer_variables(cx: &mut Cx) {
    cx.get::<crate::Variables>();
}

/// Builds the plan of a checked mail block; warnings go to `cx.warnings`. Fails on servers without a protocol, address,
/// authentication server or certificate.
pub fn build_mail(schema: &Schema, mail: &mut CheckedBlock<'_>, cx: &mut Cx) -> Result<MailPlan, Vec<Complaint>> {
    builder::build_plan(FEATURES, mail, cx, &|feature| schema.table_index(feature, ContextArea::Mail))
}
