//! `render`: from manifests, or recorded answers of engines and Consul, to nginx.conf.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use cluster_discovery::{Catalog, Provider, read_recorded};
use cluster_gateway::translate_gateways;
use cluster_model::{Model, ObjectOrigin};
use cluster_objects::{Complaint, ObjectSet};
use cluster_render::RenderedConfig;

use crate::arguments::{IngressArguments, Render};
use crate::input;

/// Runs the command: 0 if something is served, 1 for errors, and with `--strict` for complaints.
pub fn render_manifests(options: &Render) -> ExitCode {
    if let Some(argument) = options.misplaced() {
        return fail(&format!("{argument} has no meaning for this provider"));
    }
    if let Some(provider) = options.discovery.provider.source() {
        return run_recorded(options, provider);
    }
    let (mut set, mut complaints) = (ObjectSet::default(), Vec::new());
    if let Err(error) = input::read_inputs(&options.input, &mut set, &mut complaints) {
        return fail(&error);
    }
    let translation = translate_gateways(&set, &gateway_settings(options));
    complaints.extend(translation.complaints);
    let ingress =
        cluster_ingress::translate_ingresses(&set, &ingress_settings(&options.ingress, options.resolver.is_some()));
    complaints.extend(ingress.complaints);
    let mut model = translation.model;
    for conflict in model.merge(ingress.model) {
        complaints.push(complain_about(&conflict.origin, &conflict.to_string()));
    }
    let config = cluster_render::render_model(&model, &render_settings(options));
    for (origin, reason) in &config.complaints {
        complaints.push(complain_about(origin, reason));
    }
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if let Some(path) = &options.status {
        let text = serde_json::to_string_pretty(&translation.statuses).unwrap_or_default();
        if let Err(error) = fs::write(path, text + "\n") {
            return fail(&format!("{}: {error}", path.display()));
        }
    }
    if is_empty(&model) {
        return fail("nothing to serve: no Gateway of ours has a valid listener, and no Ingress is of our class");
    }
    if let Err(error) = write(&config, options.output.as_deref()) {
        return fail(&error);
    }
    match options.strict && !complaints.is_empty() {
        true => fail(&format!("{} parts are left out", complaints.len())),
        false => ExitCode::SUCCESS,
    }
}

/// Translates recorded answers of an engine or of Consul.
fn run_recorded(options: &Render, provider: Provider) -> ExitCode {
    let mut settings = options.discovery.settings(provider, &options.ingress, options.resolver.is_some());
    if let Some(folder) = &options.discovery.certificates {
        match crate::run::read_folder(folder) {
            Ok(certificates) => settings.certificates = Arc::new(certificates),
            Err(error) => return fail(&error),
        }
    }
    let texts = match input::read_bytes(&options.input) {
        Ok(texts) => texts,
        Err(error) => return fail(&error),
    };
    let (mut catalog, mut complaints) = (Catalog::default(), Vec::new());
    for (source, text) in texts {
        let text = String::from_utf8_lossy(&text);
        let reasons = read_recorded(&text, provider, &mut catalog).err().unwrap_or_default();
        complaints.extend(reasons.into_iter().map(|reason| Complaint { subject: source.clone(), reason }));
    }
    let translation = cluster_discovery::translate_catalog(&catalog, &settings, &BTreeSet::new());
    complaints.extend(translation.complaints);
    let config = cluster_render::render_model(&translation.model, &render_settings(options));
    complaints.extend(config.complaints.iter().map(|(origin, reason)| complain_about(origin, reason)));
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if translation.owners.is_empty() {
        return fail("nothing to serve: no label tidegate.host, no variable VIRTUAL_HOST, and no tag of these");
    }
    if let Err(error) = write(&config, options.output.as_deref()) {
        return fail(&error);
    }
    match options.strict && !complaints.is_empty() {
        true => fail(&format!("{} parts are left out", complaints.len())),
        false => ExitCode::SUCCESS,
    }
}

/// Returns a complaint about the object of a part of the model.
pub fn complain_about(origin: &ObjectOrigin, reason: &str) -> Complaint {
    let subject = format!("{}/{} {}", origin.namespace, origin.kind, origin.name);
    let reason = if origin.part.is_empty() { reason.to_owned() } else { format!("{}: {reason}", origin.part) };
    Complaint { subject, reason }
}

fn fail(words: &str) -> ExitCode {
    eprintln!("tidegate-controller: {words}");
    ExitCode::FAILURE
}

fn is_empty(model: &Model) -> bool {
    model.http.is_empty() && model.tcp.is_empty() && model.udp.is_empty()
}

fn gateway_settings(options: &Render) -> cluster_gateway::Settings {
    let mut settings = cluster_gateway::Settings {
        controller_name: options.controller_name.clone(),
        class: options.class.clone(),
        reserved_ports: options.probe_port.into_iter().collect(),
        ..cluster_gateway::Settings::default()
    };
    for (gateway, address) in &options.gateway_address {
        settings.addresses.entry(gateway.clone()).or_default().push(*address);
    }
    settings
}

/// Returns the settings of the translation of Ingresses.
pub fn ingress_settings(options: &IngressArguments, has_resolver: bool) -> cluster_ingress::Settings {
    let defaults = cluster_ingress::Settings::default();
    cluster_ingress::Settings {
        address: options.ingress_address,
        http_port: options.http_port.unwrap_or(defaults.http_port),
        https_port: options.https_port.unwrap_or(defaults.https_port),
        controller_name: options.ingress_controller_name.clone(),
        class: options.ingress_class.clone(),
        serves_without_class: options.ingress_without_class,
        default_certificate: options.default_certificate.clone(),
        default_backend: options.default_backend.clone(),
        config_map: options.config_map.clone(),
        allows_snippets: options.allow_snippets,
        firewall_folder: options.firewall_folder.clone(),
        has_resolver,
        names_services_without_slices: defaults.names_services_without_slices,
    }
}

fn render_settings(options: &Render) -> cluster_render::Settings {
    cluster_render::Settings {
        run_folder: options.run_folder.clone(),
        probe_port: options.probe_port,
        route_zones: options.route_metrics,
        resolver: options.resolver.clone(),
        ipv6: options.ipv6,
        ..cluster_render::Settings::default()
    }
}

fn write(config: &RenderedConfig, output: Option<&Path>) -> Result<(), String> {
    let Some(folder) = output else {
        let written = io::stdout().lock().write_all(config.main.as_bytes());
        return written.map_err(|error| format!("standard output: {error}"));
    };
    write_file(&folder.join("nginx.conf"), config.main.as_bytes(), 0o644)?;
    write_files(folder, &config.files)
}

/// Writes the files of a configuration beside its main file; keys are their owner's alone.
fn write_files(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (name, contents) in files {
        let mode = if name.ends_with(".key") { 0o600 } else { 0o644 };
        write_file(&folder.join(name), contents, mode)?;
    }
    Ok(())
}

/// Writes a file next to its place, then moves it there: a key never has other rights, a reader never sees a half.
pub fn write_file(path: &Path, contents: &[u8], mode: u32) -> Result<(), String> {
    let error = |error: io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(error)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary);
    let written = opened.and_then(|mut file| file.write_all(contents)).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| drop(fs::remove_file(&temporary))).map_err(error)
}
