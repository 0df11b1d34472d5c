//! Certificates that servers show, and the state of their orders by ACME.

use super::super::data::Data;
use super::super::format;
use super::super::html::{Cell, Column, Markup, Row, Table, Tone, badge, number, small, words};
use super::{Section, place};
use crate::api::certificates::{self, DAY, Shown};
use tls::x509::{name, time};

/// Days of validity below which a certificate is a warning.
const DAYS_SOON: i64 = 14;

const COLUMNS: &[Column] =
    &[words("Names"), number("Days left"), words("Valid until"), words("Issuer"), words("ACME"), words("Configured")];

pub fn section(data: &mut Data<'_>) -> Option<Section> {
    let now = i64::try_from(data.now / 1000).unwrap_or(0);
    let mut all = certificates::all(data.plan, data.files);
    if all.is_empty() {
        return None;
    }
    all.sort_by_key(|shown| shown.leaf.as_ref().map_or(i64::MIN, |leaf| leaf.not_after));
    let rows = all.iter().enumerate().map(|(index, shown)| row(data, shown, now, index)).collect();
    let table = Table { id: "certificates".into(), caption: Markup::of("Certificates"), columns: COLUMNS, rows };
    Some(Section { id: "certificates", title: "Certificates", body: table.show() })
}

fn row(data: &mut Data<'_>, shown: &Shown, now: i64, index: usize) -> Row {
    let names = if shown.names.is_empty() { "(no name)".into() } else { shown.names.join(", ") };
    let days = shown.leaf.as_ref().map(|leaf| (leaf.not_after - now).div_euclid(DAY));
    let tone = match days {
        None => Tone::Bad,
        Some(days) if days < 0 => Tone::Bad,
        Some(days) if days < DAYS_SOON => Tone::Warn,
        Some(_) => Tone::Plain,
    };
    let short = shown.names.first().map_or("(no name)", String::as_str);
    match days {
        None => data.alert(Tone::Bad, "certificates", format!("There is no certificate for {short} yet")),
        Some(days) if days < 0 => {
            data.alert(Tone::Bad, "certificates", format!("The certificate for {short} has expired"))
        }
        Some(days) if days < DAYS_SOON => {
            data.alert(Tone::Warn, "certificates", format!("The certificate for {short} ends within {days} days"));
        }
        Some(_) => {}
    }
    let left = match days {
        None => Cell::none(),
        Some(days) if days < 0 => Cell::of(badge(Tone::Bad, "expired")),
        Some(days) if days < DAYS_SOON => Cell::of(badge(Tone::Warn, days)),
        Some(days) => Cell::number(days as f64, format::count(days.unsigned_abs())),
    };
    let until = shown.leaf.as_ref().map_or_else(Cell::none, |leaf| Cell::text(time::print(leaf.not_after)));
    let issuer = shown.leaf.as_ref().map_or_else(Cell::none, |leaf| Cell::text(name::rfc2253(leaf.issuer())));
    let acme = match &shown.acme {
        None => Cell::none(),
        Some(state) => {
            let head = Markup::of(&state.issuer).raw(", ").text(state.challenge).raw(": ").text(&state.state);
            let next = state.next_order.map_or_else(Markup::new, |at| {
                Markup::new().raw("<br>").add(small(format_args!("next order {}", time::print(at))))
            });
            let error = match &state.last_error {
                Some(why) => {
                    data.alert(Tone::Warn, "certificates", format!("The last order for {short} failed: {why}"));
                    Markup::new().raw("<br>").add(badge(Tone::Warn, why))
                }
                None => Markup::new(),
            };
            Cell::of(head.add(next).add(error))
        }
    };
    Row {
        key: format!("{index} {short}"),
        tone,
        cells: vec![Cell::text(names), left, until, issuer, acme, place(&shown.places.join(", "))],
    }
}
