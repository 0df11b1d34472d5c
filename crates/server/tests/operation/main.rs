//! The program as its operator meets it: command line, signals, reloads, upgrades, sandbox, API, metrics, traces, tools.

#[path = "../support/mod.rs"]
mod support;

mod api;
mod api_servers;
mod attachments;
mod candidates;
mod chaos;
mod command_line;
mod configuration;
mod configuration_kills;
mod configuration_load;
mod control_api;
mod convert;
mod dashboard;
mod diff;
mod endurance;
mod example_nodes;
mod examples;
mod explain;
mod exposition;
mod faults;
mod first_day;
mod lint;
mod many_nodes;
mod many_nodes_auth;
mod many_nodes_checks;
mod many_nodes_faults;
mod many_nodes_limits;
mod measuring;
mod metrics;
mod observed;
mod otel;
mod privileges;
mod reload;
mod sandbox;
mod shutdown;
mod signals;
mod smoke;
mod upgrade;
