//! The sections of the page, in their order. A section without data is left out.

mod certificates;
mod configuration;
pub mod explain;
mod firewall;
mod log;
mod overview;
pub mod servers;
mod stores;
mod upstreams;
mod zones;

use super::data::{Alert, Data};
use super::history::{HistorySpan, view_history};
use super::html::{Cell, Markup, Tone, state_badge};

#[derive(Debug)]
pub struct Section {
    pub id: &'static str,
    pub title: &'static str,
    pub body: Markup,
}

/// Builds the overview of both periods, and all other sections.
pub fn build_views(data: &mut Data<'_>) -> ([Markup; 2], Vec<Section>) {
    let views: [fn(&mut Data<'_>) -> Option<Section>; 12] = [
        servers::servers_section,
        upstreams::upstreams_section,
        certificates::certificates_section,
        zones::caches_section,
        zones::limits_section,
        firewall::firewall_section,
        zones::streams_section,
        log::log_section,
        configuration::configuration_section,
        zones::resolvers_section,
        zones::keyvals_section,
        stores::stores_section,
    ];
    let sections: Vec<Section> = views.iter().filter_map(|build| build(data)).collect();
    overview::collect_alerts(data);
    data.alerts.sort_by_key(|alert| alert.tone);
    let minutes = overview::overview_body(data, HistorySpan::Minutes);
    data.history = view_history(HistorySpan::Hour);
    let hour = overview::overview_body(data, HistorySpan::Hour);
    ([minutes, hour], sections)
}

/// Alerts shown; further ones are counted.
const ALERTS_MAX: usize = 20;

fn alerts(all: &[Alert]) -> Markup {
    if all.is_empty() {
        return Markup::new()
            .raw("<p class=\"calm\">")
            .add(state_badge(Tone::Good, "Nothing needs attention."))
            .raw("</p>");
    }
    let list = Markup::new().raw("<ul class=\"alerts\">").each(all.iter().take(ALERTS_MAX), |alert| {
        let word = if alert.tone == Tone::Bad { "critical" } else { "warning" };
        let open =
            Markup::new().raw("<li class=\"").raw(alert.tone.class()).raw("\">").add(state_badge(alert.tone, word));
        open.raw(" <a href=\"#").raw(alert.section).raw("\">").text(&alert.text).raw("</a></li>")
    });
    match all.len().saturating_sub(ALERTS_MAX) {
        0 => list.raw("</ul>"),
        more => list.raw("<li>").text(more).raw(" more</li></ul>"),
    }
}

fn rate(rate: Option<f64>) -> Cell {
    rate.map_or_else(Cell::none, |rate| Cell::number(rate, super::format::format_decimal(rate)))
}

fn place(text: &str) -> Cell {
    if text.is_empty() {
        return Cell::none();
    }
    Cell::of(Markup::new().raw("<code>").text(text).raw("</code>"))
}
