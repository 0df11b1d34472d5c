//! The dashboard's section `Shared store`: stores of state that several servers share.

use super::super::data::Data;
use super::super::format;
use super::super::html::{Cell, Column, HtmlTable, Markup, TableRow, Tone, number_column, state_badge, words_column};
use super::{Section, rate};
use area::shared_store::{StoreState, store_states};

const ID: &str = "stores";
const STORES: &[Column] = &[
    words_column("Store"),
    words_column("State"),
    words_column("Since"),
    number_column("Servers"),
    number_column("Waiting"),
    number_column("Sent"),
    number_column("Sent/s"),
    number_column("Received"),
    number_column("No room"),
    number_column("Permits"),
    number_column("Refused"),
    number_column("Failures"),
    words_column("Last failure"),
];

/// Shows the store of `shared_store`: one, and another one while a reload replaces it.
pub fn stores_section(data: &mut Data<'_>) -> Option<Section> {
    let rows: Vec<TableRow> = store_states().into_iter().map(|(address, state)| row(data, address, state)).collect();
    if rows.is_empty() {
        return None;
    }
    let table = HtmlTable { id: ID.into(), caption: Markup::new().raw("Shared store"), columns: STORES, rows };
    Some(Section { id: ID, title: "Shared store", body: table.show() })
}

fn row(data: &mut Data<'_>, address: String, state: StoreState) -> TableRow {
    let (tone, word) = if state.is_connected { (Tone::Good, "connected") } else { (Tone::Bad, "lost") };
    if !state.is_connected {
        let reason = state.last_failure.clone().unwrap_or_else(|| "no connection yet".to_owned());
        data.alert(Tone::Bad, ID, format!("The shared store \"{address}\" is not there: {reason}"));
    }
    let sent_rate = data.rates.rate(format!("store {address}"), state.records_sent);
    let since = (state.since > 0).then(|| format::format_time(state.since));
    let cells = vec![
        Cell::text(&address),
        Cell::of(state_badge(tone, word)),
        since.map_or_else(Cell::none, Cell::text),
        Cell::count(state.nodes),
        Cell::count(state.records_pending),
        Cell::count(state.records_sent),
        rate(sent_rate),
        Cell::count(state.records_applied),
        Cell::count(state.records_refused).alarming(Tone::Warn),
        Cell::count(state.permits_taken),
        Cell::count(state.permits_refused),
        Cell::count(state.failures),
        state.last_failure.map_or_else(Cell::none, Cell::text),
    ];
    TableRow { key: address, tone: if state.is_connected { Tone::Plain } else { Tone::Bad }, cells }
}
