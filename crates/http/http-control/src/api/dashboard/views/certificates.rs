//! Certificates that servers show, and the state of their orders by ACME.

use super::super::data::Data;
use super::super::format;
use super::super::html::{Cell, Column, Markup, Row, Table, Tone, badge, number, small, words};
use super::{Section, place};
use crate::shared::acme_state::{AcmeState, AcmeStates};
use std::net::IpAddr;
use tls::x509::{Certificate, name, time};

const DAY: i64 = 86_400;
/// Days of validity below which a certificate is a warning.
const DAYS_SOON: i64 = 14;

const COLUMNS: &[Column] =
    &[words("Names"), number("Days left"), words("Valid until"), words("Issuer"), words("ACME"), words("Configured")];

/// A certificate with the places of its servers.
struct Shown {
    names: Vec<String>,
    leaf: Option<Certificate>,
    places: Vec<String>,
    acme: Option<AcmeState>,
}

fn names_of(leaf: &Certificate) -> Vec<String> {
    let address = |bytes: &Vec<u8>| match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes.as_slice()).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        16 => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        _ => None,
    };
    let dns = leaf.extensions.dns_names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
    let all: Vec<String> = dns.chain(leaf.extensions.addresses.iter().filter_map(address)).collect();
    if all.is_empty() { leaf.common_name().into_iter().collect() } else { all }
}

fn all(data: &Data<'_>) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for server in &data.plan.servers {
        let rules = server.tls.as_ref().and_then(|tls| tls.rules.as_ref());
        let place = data.place(data.plan.loc(server.location).at);
        let Some(set) = rules.map(|rules| rules.certificates()) else { continue };
        for leaf in set.pairs().iter().filter_map(|pair| pair.leaf()) {
            let same = |shown: &&mut Shown| shown.leaf.as_ref().is_some_and(|known| known.der() == leaf.der());
            match all.iter_mut().find(same) {
                Some(shown) => shown.places.push(place.clone()),
                None => all.push(Shown {
                    names: names_of(leaf),
                    leaf: Some(leaf.clone()),
                    places: vec![place.clone()],
                    acme: None,
                }),
            }
        }
    }
    let ordered = data.plan.ext::<AcmeStates>().map(|states| (states.0)(data.plan)).unwrap_or_default();
    all.extend(ordered.into_iter().map(|state| Shown {
        names: state.names.clone(),
        leaf: state.leaf.as_deref().cloned(),
        places: state.places.clone(),
        acme: Some(state),
    }));
    all
}

pub fn section(data: &mut Data<'_>) -> Option<Section> {
    let now = i64::try_from(data.now / 1000).unwrap_or(0);
    let mut all = all(data);
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
