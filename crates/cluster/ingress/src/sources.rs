//! Ingresses with their annotations, snippets and files.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_model::Model;
use cluster_objects::types::Ingress;
use cluster_objects::{Complaint, Kind, ObjectName};

use crate::annotations::{self, OLD_PREFIX, PREFIX, Treatment};
use crate::config::Config;
use crate::firewall;
use crate::hosts::{IngressSource, SettingFiles, Snippets};
use crate::secrets::{Secrets, own_name};
use crate::settings::{Defaults, Settings};
use crate::snippets::{self, SnippetPlace};
use crate::values::Reader;

/// Reads the annotations of Ingresses. One whose snippet is refused is left out.
pub(crate) fn read<'a>(
    selected: &[(&'a ObjectName, &'a Arc<Ingress>)],
    settings: &Settings,
    defaults: &Defaults,
    secrets: &Secrets<'a>,
    model: &mut Model,
    complaints: &mut Vec<Complaint>,
) -> Vec<IngressSource<'a>> {
    let mut sources = Vec::new();
    for &(name, ingress) in selected {
        let mut complain =
            |words: String| complaints.push(Complaint::about(Kind::Ingress, &name.namespace, &name.name, words));
        let annotations = ingress.metadata.annotations.iter().flatten();
        let mut values = BTreeMap::new();
        for (key, value) in annotations {
            if let Some(own) = key.strip_prefix(PREFIX) {
                values.insert(own, value.as_str());
                if let Some(words) = named(own) {
                    complain(words);
                }
            } else if let Some(own) = key.strip_prefix(OLD_PREFIX) {
                complain(format!("{OLD_PREFIX}{own} has no effect since 2018: write {PREFIX}{own}"));
            }
        }
        let snippets = match read_snippets(&values, settings, &mut complain) {
            Ok(snippets) => snippets,
            Err(words) => {
                complain(format!("left out: {words}"));
                continue;
            }
        };
        let mut reader = Reader::new(values);
        let mut config = Config::read(&mut reader, defaults);
        match firewall::read_ingress(&mut reader, &defaults.firewall, settings.firewall_policy()) {
            Ok(firewall) => config.firewall = firewall,
            Err(reason) => _ = config.denied.get_or_insert(reason),
        }
        for words in std::mem::take(&mut reader.complaints) {
            complain(words);
        }
        if config.canary.is_none()
            && ["canary-weight", "canary-by-header", "canary-by-cookie"].iter().any(|name| reader.text(name).is_some())
        {
            complain("canary-* has no effect without canary: \"true\"".into());
        }
        let mut files = SettingFiles::default();
        if let Err(reason) = read_files(&mut files, &config, &name.namespace, defaults, secrets, model) {
            config.denied.get_or_insert(reason);
        }
        sources.push(IngressSource { name, ingress, config, snippets, files });
    }
    sources
}

/// Returns complaints about the name of an annotation.
fn named(name: &str) -> Option<String> {
    match annotations::find_annotation(name) {
        None => Some(annotations::annotation_advice(name)),
        Some(known) if known.treatment == Treatment::NoEqual && name != "affinity-canary-behavior" => {
            Some(format!("{name} has no effect: {}", known.becomes))
        }
        Some(_) => None,
    }
}

fn read_snippets(
    values: &BTreeMap<&str, &str>,
    settings: &Settings,
    complain: &mut impl FnMut(String),
) -> Result<Snippets, String> {
    let mut found = Snippets::default();
    let places = [
        ("configuration-snippet", SnippetPlace::Location, &mut found.location),
        ("server-snippet", SnippetPlace::Server, &mut found.server),
        ("auth-snippet", SnippetPlace::Location, &mut found.auth),
        ("stream-snippet", SnippetPlace::Stream, &mut found.stream),
    ];
    for (name, place, lines) in places {
        let Some(text) = values.get(name).filter(|text| !text.trim().is_empty()) else { continue };
        if !settings.allows_snippets {
            complain(format!("{name} is ignored: snippets need --allow-snippets"));
            continue;
        }
        *lines = snippets::parse(text, place).map_err(|error| format!("{name}: {error}"))?;
    }
    if settings.allows_snippets
        && let Some(text) = values.get("modsecurity-snippet").map(|text| text.trim()).filter(|text| !text.is_empty())
    {
        firewall::check_rules(text, settings.firewall_policy())
            .map_err(|error| format!("modsecurity-snippet: {error}"))?;
    }
    Ok(found)
}

fn read_files(
    files: &mut SettingFiles,
    config: &Config,
    namespace: &str,
    defaults: &Defaults,
    secrets: &Secrets<'_>,
    model: &mut Model,
) -> Result<(), String> {
    let named =
        |annotation: &str, value: &str| own_name(namespace, value).map_err(|error| format!("{annotation}: {error}"));
    if let Some(auth) = &config.auth {
        let name = named("auth-secret", &auth.secret)?;
        files.users = Some(secrets.users(&name, auth.is_map, model).map_err(|error| format!("auth-secret: {error}"))?);
    }
    if let Some(tls) = &config.auth_tls {
        files.auth_tls = Some(own_name(namespace, &tls.secret).and_then(|name| secrets.credentials(&name, model)));
    }
    if let Some(ssl) = &config.proxy_ssl {
        let name = named("proxy-ssl-secret", &ssl.secret)?;
        let credentials = secrets.credentials(&name, model).map_err(|error| format!("proxy-ssl-secret: {error}"))?;
        files.proxy_ssl = Some(credentials);
    }
    let fields = |annotation: &str, value: &str| -> Result<Vec<(String, String)>, String> {
        let name = named(annotation, value)?;
        let fields = secrets.config_map(&name).map_err(|error| format!("{annotation}: {error}"))?;
        for (name, value) in &fields {
            cluster_model::check_field(name, value).map_err(|error| format!("{annotation}: {error}"))?;
        }
        Ok(fields)
    };
    if let Some(map) = &config.custom_headers {
        files.response_fields = fields("custom-headers", map)?;
        let allowed = &defaults.allowed_response_headers;
        if let Some((name, _)) = files.response_fields.iter().find(|(name, _)| !allowed.contains(name)) {
            return Err(format!("custom-headers: {name} is not in global-allowed-response-headers of the ConfigMap"));
        }
    }
    if let Some(map) = config.external_auth.as_ref().and_then(|auth| auth.proxy_set_headers.as_ref()) {
        files.auth_fields = fields("auth-proxy-set-headers", map)?;
    }
    if let Some(map) = &config.fastcgi_params {
        files.fastcgi_params = fields("fastcgi-params-configmap", map)?;
    }
    Ok(())
}
