//! `BackendTLSPolicy`: TLS towards the ports of a Service.

use std::collections::{BTreeMap, BTreeSet};

use cluster_model::{Authority, BackendTls, FileName, HostName, Model, Trust};
use cluster_objects::types::BackendTlsPolicy;
use cluster_objects::types::backendtlspolicies::BackendTlsPolicyValidationSubjectAltNamesType as NameType;
use cluster_objects::{ObjectName, ObjectSet};

use crate::Settings;
use crate::api::{GROUP, SecretRef};
use crate::conditions::{ConditionFault, ObjectCondition};
use crate::status::{ParentReference, PolicyAncestor};
use crate::tls::{Owner, TlsFiles};

/// Policies by their targets.
pub(crate) struct Policies<'a> {
    /// The policies of a Service, with the port's name if they name one; the oldest first.
    by_target: BTreeMap<ObjectName, Vec<(Option<String>, usize)>>,
    all: Vec<Policy<'a>>,
    authorities: BTreeMap<FileName, Authority>,
}

struct Policy<'a> {
    name: ObjectName,
    object: &'a BackendTlsPolicy,
    checked: Option<PolicyCheck>,
    /// A target that an older policy has already.
    conflict: Option<ConditionFault>,
    ancestors: BTreeSet<ObjectName>,
}

#[derive(Clone, Debug)]
struct PolicyCheck {
    tls: Option<BackendTls>,
    accepted: Option<ConditionFault>,
    resolved: Option<ConditionFault>,
}

impl<'a> Policies<'a> {
    pub fn new(set: &'a ObjectSet) -> Policies<'a> {
        let mut policies = Policies { by_target: BTreeMap::new(), all: Vec::new(), authorities: BTreeMap::new() };
        for (name, object) in set.by_age::<BackendTlsPolicy>() {
            let index = policies.all.len();
            let mut conflict = None;
            for target in &object.spec.target_refs {
                if !target.group.is_empty() || target.kind != "Service" {
                    continue;
                }
                let service = ObjectName::new(&name.namespace, &target.name);
                let section = target.section_name.clone().filter(|name| !name.is_empty());
                let known = policies.by_target.entry(service).or_default();
                match known.iter().find(|(other, _)| *other == section) {
                    Some((_, older)) => {
                        let words = format!("{} has the target {} already", policies.all[*older].name, target.name);
                        conflict = Some(ConditionFault::new("Conflicted", words));
                    }
                    None => known.push((section, index)),
                }
            }
            let policy = Policy { name: name.clone(), object, checked: None, conflict, ancestors: BTreeSet::new() };
            policies.all.push(policy);
        }
        policies
    }

    /// Returns the TLS of a Service's port, if a policy has it as a target; `Err` if that policy is not valid.
    pub fn find(
        &mut self,
        set: &ObjectSet,
        service: &ObjectName,
        port: Option<&str>,
        gateways: &[ObjectName],
    ) -> Option<Result<BackendTls, ()>> {
        let targets = self.by_target.get(service)?;
        let named = targets.iter().find(|(section, _)| section.is_some() && section.as_deref() == port);
        let index = named.or_else(|| targets.iter().find(|(section, _)| section.is_none()))?.1;
        if self.all[index].checked.is_none() {
            let checked = self.check(set, index);
            self.all[index].checked = Some(checked);
        }
        let policy = &mut self.all[index];
        policy.ancestors.extend(gateways.iter().cloned());
        let tls = policy.checked.as_ref().and_then(|checked| checked.tls.clone());
        Some(tls.ok_or(()))
    }

    fn check(&mut self, set: &ObjectSet, index: usize) -> PolicyCheck {
        let Policy { name, object, .. } = &self.all[index];
        let validation = &object.spec.validation;
        let refuse = |fault: ConditionFault| PolicyCheck { tls: None, accepted: Some(fault), resolved: None };
        let invalid = |words: String| refuse(ConditionFault::new("Invalid", words));
        if !matches!(HostName::parse(&validation.hostname), Ok(HostName::Exact(_))) {
            return invalid(format!("\"{}\" is no name of a host", validation.hostname.escape_debug()));
        }
        let mut names = Vec::new();
        for san in validation.subject_alt_names.iter().flatten() {
            let value = match san.r#type {
                NameType::Hostname => san.hostname.as_ref().filter(|name| HostName::parse(name).is_ok()),
                NameType::Uri => san.uri.as_ref().filter(|uri| uri.bytes().all(|byte| byte.is_ascii_graphic())),
            };
            match value.filter(|value| !value.is_empty()) {
                Some(value) => names.push(value.clone()),
                None => return invalid("a subject alternative name is not valid".into()),
            }
        }
        let (mut found, mut fault) = (Vec::new(), None);
        let references = validation.ca_certificate_refs.clone().unwrap_or_default();
        let owner = Owner { kind: "BackendTLSPolicy", namespace: &name.namespace, name: &name.name };
        for reference in &references {
            let reference = SecretRef {
                group: reference.group.clone(),
                kind: reference.kind.clone(),
                namespace: None,
                name: reference.name.clone(),
            };
            match TlsFiles::default().authority(set, owner, &reference, ["InvalidCACertificateRef", "InvalidKind"]) {
                Ok(authority) => found.push(authority),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        let trust = match (references.is_empty(), validation.well_known_ca_certificates.as_deref()) {
            (true, Some("System")) => Trust::System,
            (true, other) => {
                let words =
                    format!("wellKnownCACertificates \"{}\" is not supported", other.unwrap_or("").escape_debug());
                return invalid(words);
            }
            (false, _) if found.is_empty() => {
                let words = fault.as_ref().map(|fault| fault.message.clone()).unwrap_or_default();
                let accepted = Some(ConditionFault::new("NoValidCACertificate", words));
                return PolicyCheck { tls: None, accepted, resolved: fault };
            }
            (false, _) => {
                let file = FileName::new(&["policies", owner.namespace, owner.name]);
                self.authorities.insert(file.clone(), Authority::join(&found));
                Trust::Authority(file)
            }
        };
        let tls = BackendTls { server_name: validation.hostname.clone(), names, trust, certificate: None };
        PolicyCheck { tls: Some(tls), accepted: None, resolved: fault }
    }

    pub fn add_authorities(&self, model: &mut Model) {
        model.authorities.extend(self.authorities.iter().map(|(name, authority)| (name.clone(), authority.clone())));
    }

    /// Returns the status of each policy at the Gateways whose routes use its targets.
    pub fn statuses(&self, settings: &Settings) -> BTreeMap<String, Vec<PolicyAncestor>> {
        let mut statuses = BTreeMap::new();
        for policy in &self.all {
            let generation = policy.object.metadata.generation.unwrap_or(0);
            let checked = policy.checked.as_ref();
            let accepted = policy.conflict.as_ref().or(checked.and_then(|checked| checked.accepted.as_ref()));
            let resolved = checked.and_then(|checked| checked.resolved.as_ref());
            let ancestors = self.ancestors(policy);
            let ancestor = |gateway: &ObjectName| PolicyAncestor {
                ancestor_ref: ParentReference {
                    group: Some(GROUP.into()),
                    kind: Some("Gateway".into()),
                    namespace: Some(gateway.namespace.clone()),
                    name: gateway.name.clone(),
                    ..ParentReference::default()
                },
                controller_name: settings.controller_name.clone(),
                conditions: vec![
                    ObjectCondition::of("Accepted", "Accepted", accepted, generation),
                    ObjectCondition::of("ResolvedRefs", "ResolvedRefs", resolved, generation),
                ],
            };
            if !ancestors.is_empty() {
                statuses.insert(policy.name.to_string(), ancestors.into_iter().map(ancestor).collect());
            }
        }
        statuses
    }

    /// A policy in conflict has the ancestors of the one that is used.
    fn ancestors<'b>(&'b self, policy: &'b Policy<'a>) -> BTreeSet<&'b ObjectName> {
        let mut found: BTreeSet<&ObjectName> = policy.ancestors.iter().collect();
        if policy.conflict.is_some() {
            for target in &policy.object.spec.target_refs {
                let service = ObjectName::new(&policy.name.namespace, &target.name);
                for (_, index) in self.by_target.get(&service).into_iter().flatten() {
                    found.extend(self.all[*index].ancestors.iter());
                }
            }
        }
        found
    }
}
