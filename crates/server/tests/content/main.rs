//! Features of the http area: files, caches, logins, logs, recipes, applications, and the `.case` files.

#[path = "../support/mod.rs"]
mod support;

mod applications;
mod browsers;
mod cache;
mod cache_purge;
mod cache_tags;
mod cases;
mod complaints;
mod corpora;
mod databases;
mod files;
mod firewall;
mod firewall_setup;
mod guesses;
mod htaccess;
mod json_log;
mod login;
mod logs;
mod ntlm;
mod oidc_provider;
mod readers;
mod recipes;
mod rewrite_oracle;
mod satisfy;
mod serve;
mod session_logs;
mod subrequests;
mod tokens;
