//! Live view: a few redrawn lines on a terminal; nothing elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;

use figures::units::{Unit, format_count, format_seconds};

use super::plan::Plan;
use crate::engine::job::Job;
use crate::engine::run::Moment;

pub fn round_label(plan: &Plan, value: f64, round: usize) -> String {
    let rounds = if plan.rounds > 1 { format!("  round {}/{}", round + 1, plan.rounds) } else { String::new() };
    format!("{} {}{rounds}", crate::report::text::grouped_rate(value), plan.quantity)
}

pub struct View {
    on: bool,
    label: String,
    length: f64,
    /// Requests after which the run ends, if limited.
    budget: Option<u64>,
    state: Mutex<ViewState>,
}

#[derive(Default)]
struct ViewState {
    rates: Vec<f64>,
    failures: u64,
    answers: u64,
    drawn: bool,
}

const SPARKS: usize = 48;

impl View {
    /// Starts a view if wanted and if standard error is a terminal.
    pub fn new(wanted: bool, label: &str, job: &Job) -> View {
        View {
            on: wanted && std::io::stderr().is_terminal(),
            label: label.into(),
            length: job.profile.seconds(),
            budget: job.budget,
            state: Mutex::default(),
        }
    }

    pub fn show(&self, moment: &Moment) {
        let Ok(mut state) = self.state.lock() else { return };
        let record = &moment.record;
        state.rates.push(record.answers as f64 / moment.seconds.max(1e-9));
        state.failures += record.failures.total();
        state.answers += record.answers;
        if !self.on {
            return;
        }
        let up = if state.drawn { "\x1b[4A" } else { "" };
        state.drawn = true;
        let time =
            |q: f64| Some(record.corrected.quantile(q)).filter(|v| v.is_finite()).map_or("–".into(), format_seconds);
        let failed = if state.failures > 0 {
            format!("   {} failed", format_count(state.failures as f64))
        } else {
            String::new()
        };
        let waiting = if moment.pending > 0 {
            format!("   {} waiting", format_count(moment.pending as f64))
        } else {
            String::new()
        };
        let text = format!(
            "{up}\x1b[2K{}  {}\n\x1b[2K  {:>9}  {}\n\x1b[2K  p50 {}   p99 {}   max {}\n\x1b[2K  {}{waiting}{failed}\n",
            self.label,
            bar(match self.budget {
                Some(budget) => state.answers as f64 / budget.max(1) as f64,
                None => moment.at / self.length.max(1e-9),
            }),
            Unit::PerSecond.write(*state.rates.last().unwrap_or(&0.0)),
            draw_sparks(&state.rates, SPARKS),
            time(0.5),
            time(0.99),
            time(1.0),
            figures::units::format_counted(moment.open as u64, "connection", "connections")
        );
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.on && self.state.lock().is_ok_and(|s| s.drawn) {
            let _ = std::io::stderr().write_all(b"\x1b[4A\x1b[J");
        }
    }
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * 30.0) as usize;
    format!("[{}{}] {:.0} %", "█".repeat(full), "░".repeat(30 - full), share.clamp(0.0, 1.0) * 100.0)
}

pub fn draw_sparks(rates: &[f64], places: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &rates[rates.len().saturating_sub(places)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    shown.iter().map(|r| LEVELS[((r / most.max(1e-9)) * 7.0).round().clamp(0.0, 7.0) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_sparks() {
        assert!(bar(0.5).starts_with("[███████████████░"));
        assert!(bar(9.0).ends_with("100 %"));
        assert_eq!(draw_sparks(&[0.0, 50.0, 100.0], SPARKS), "▁▅█");
        assert_eq!(draw_sparks(&[], SPARKS), "");
        assert_eq!(draw_sparks(&vec![1.0; 500], SPARKS).chars().count(), SPARKS);
    }
}
