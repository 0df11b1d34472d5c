//! Certificates that servers show, and the state of their orders by ACME.

use super::super::data::Data;
use super::super::format;
use super::super::html::{
    Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, small_text, state_badge, words_column,
};
use super::{Section, place};
use crate::api::certificates::{self, CertificateEntry, DAY};
use tls::x509::{name, time};

/// Days of validity below which a certificate ends soon, if a third of its lifetime is longer.
const DAYS_SOON_MAX: i64 = 30;
/// Seconds that a due order by ACME may take before its certificate is a warning.
const ORDER_TIME: i64 = 3600;

const COLUMNS: &[Column] = &[
    words_column("Names"),
    number_column("Days left"),
    words_column("Valid until"),
    words_column("Issuer"),
    words_column("ACME"),
    words_column("Configured"),
];

pub fn certificates_section(data: &mut Data<'_>) -> Option<Section> {
    let now = i64::try_from(data.now / 1000).unwrap_or(0);
    let mut all = certificates::list_certificates(data.plan, data.files);
    if all.is_empty() {
        return None;
    }
    all.sort_by_key(|shown| shown.leaf.as_ref().map_or(i64::MIN, |leaf| leaf.not_after));
    let rows = all.iter().enumerate().map(|(index, shown)| row(data, shown, now, index)).collect();
    let table = HtmlTable { id: "certificates".into(), caption: Markup::of("Certificates"), columns: COLUMNS, rows };
    Some(Section { id: "certificates", title: "Certificates", body: table.show() })
}

/// Renewal of a certificate by ACME.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    next_order: Option<i64>,
    is_failing: bool,
}

/// Rates a validity, in seconds since 1970: an expired certificate, or one that ends soon. A certificate that ACME renews
/// ends soon only if its renewal is overdue or fails.
fn tone_of((from, until): (i64, i64), renewal: Option<Renewal>, now: i64) -> Tone {
    let left = until.saturating_sub(now);
    let soon = (until.saturating_sub(from) / 3).min(DAYS_SOON_MAX * DAY);
    let is_late = |renewal: Renewal| {
        renewal.is_failing || renewal.next_order.is_none_or(|at| at.saturating_add(ORDER_TIME) < now)
    };
    match left {
        left if left < 0 => Tone::Bad,
        left if left < soon && renewal.is_none_or(is_late) => Tone::Warn,
        _ => Tone::Plain,
    }
}

fn row(data: &mut Data<'_>, shown: &CertificateEntry, now: i64, index: usize) -> TableRow {
    let names = if shown.names.is_empty() { "(no name)".into() } else { shown.names.join(", ") };
    let days = shown.leaf.as_ref().map(|leaf| (leaf.not_after - now).div_euclid(DAY));
    let renewal = shown.acme.as_ref().map(|state| Renewal {
        next_order: state.next_order,
        is_failing: state.failures > 0 || state.last_error.is_some(),
    });
    let validity = shown.leaf.as_ref().map(|leaf| (leaf.not_before, leaf.not_after));
    let tone = validity.map_or(Tone::Bad, |validity| tone_of(validity, renewal, now));
    let short = shown.names.first().map_or("(no name)", String::as_str);
    match (tone, validity) {
        (_, None) => data.alert(tone, "certificates", format!("There is no certificate for {short} yet")),
        (Tone::Bad, _) => data.alert(tone, "certificates", format!("The certificate for {short} has expired")),
        (Tone::Warn, Some((_, until))) => {
            let left = format::format_duration((until - now).unsigned_abs());
            data.alert(tone, "certificates", format!("The certificate for {short} ends in {left}"));
        }
        _ => {}
    }
    let left = match (tone, days) {
        (_, None) => Cell::none(),
        (Tone::Bad, _) => Cell::of(state_badge(tone, "expired")),
        (Tone::Warn, Some(days)) => Cell::of(state_badge(tone, days)),
        (_, Some(days)) => Cell::number(days as f64, format::format_count(days.unsigned_abs())),
    };
    let until = shown.leaf.as_ref().map_or_else(Cell::none, |leaf| Cell::text(time::print_time(leaf.not_after)));
    let issuer = shown.leaf.as_ref().map_or_else(Cell::none, |leaf| Cell::text(name::format_rfc2253(leaf.issuer())));
    let acme = match &shown.acme {
        None => Cell::none(),
        Some(state) => {
            let head = Markup::of(&state.issuer).raw(", ").text(state.challenge).raw(": ").text(&state.state);
            let next = state.next_order.map_or_else(Markup::new, |at| {
                Markup::new().raw("<br>").add(small_text(format_args!("next order {}", time::print_time(at))))
            });
            let error = match &state.last_error {
                Some(why) => {
                    data.alert(Tone::Warn, "certificates", format!("The last order for {short} failed: {why}"));
                    Markup::new().raw("<br>").add(state_badge(Tone::Warn, why))
                }
                None => Markup::new(),
            };
            Cell::of(head.add(next).add(error))
        }
    };
    TableRow {
        key: format!("{index} {short}"),
        tone,
        cells: vec![Cell::text(names), left, until, issuer, acme, place(&shown.places.join(", "))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_relative_to_the_lifetime_and_to_renewals() {
        let at = |days: i64| days * DAY;
        let of = |lifetime: i64, left: i64| tone_of((at(0), at(lifetime)), None, at(lifetime - left));
        assert_eq!([of(6, 5), of(6, 1), of(6, -1)], [Tone::Plain, Tone::Warn, Tone::Bad]);
        assert_eq!([of(90, 31), of(90, 29)], [Tone::Plain, Tone::Warn]);
        assert_eq!([of(398, 31), of(398, 29)], [Tone::Plain, Tone::Warn]);
        let renewed = |order: Option<i64>, is_failing| {
            let renewal = Renewal { next_order: order, is_failing };
            tone_of((at(0), at(90)), Some(renewal), at(70))
        };
        assert_eq!([renewed(Some(at(75)), false), renewed(Some(at(70)), false)], [Tone::Plain; 2]);
        for (order, is_failing) in [(Some(at(69)), false), (None, false), (Some(at(75)), true)] {
            assert_eq!(renewed(order, is_failing), Tone::Warn, "{order:?}");
        }
    }
}
