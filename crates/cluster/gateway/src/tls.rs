//! Certificates of Secrets, authorities of ConfigMaps, and the verification of clients.

use std::collections::BTreeMap;

use cluster_model::{Authority, Certificate, ClientMode, ClientVerification, FileName};
use cluster_objects::types::{ConfigMap, Gateway, Secret};
use cluster_objects::{ObjectSet, Referent, Referrer};

use crate::api::{ClientValidation, SecretRef};
use crate::conditions::ConditionFault;

/// Certificates and authorities by their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    pub certificates: BTreeMap<FileName, Certificate>,
    pub authorities: BTreeMap<FileName, Authority>,
}

/// Object that refers to certificates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl TlsFiles {
    /// Resolves a reference to a Secret with `tls.crt` and `tls.key`.
    ///
    /// `invalid` is the reason of references that are permitted and lead to no certificate.
    pub fn certificate(
        &mut self,
        set: &ObjectSet,
        owner: Owner<'_>,
        reference: &SecretRef,
        invalid: &'static str,
    ) -> Result<FileName, ConditionFault> {
        let SecretRef { group, kind, name, .. } = reference;
        if !group.is_empty() || kind != "Secret" {
            return Err(ConditionFault::new(invalid, format!("certificates of the kind {kind} are not supported")));
        }
        let namespace = permitted(set, owner, reference)?;
        let fault = |words: String| ConditionFault::new(invalid, format!("Secret {namespace}/{name}: {words}"));
        let file = FileName::new(&[namespace, name]);
        if self.certificates.contains_key(&file) {
            return Ok(file);
        }
        let secret = set.get::<Secret>(namespace, name).ok_or_else(|| fault("does not exist".into()))?;
        let data = |key: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
            let text =
                || secret.string_data.as_ref().and_then(|data| data.get(key)).map(|text| text.clone().into_bytes());
            data.or_else(text).ok_or_else(|| fault(format!("has no {key}")))
        };
        let certificate = Certificate::from_pem(&data("tls.crt")?, &data("tls.key")?).map_err(fault)?;
        self.certificates.insert(file.clone(), certificate);
        Ok(file)
    }

    /// Resolves a reference to a ConfigMap with `ca.crt`.
    pub fn authority(
        &self,
        set: &ObjectSet,
        owner: Owner<'_>,
        reference: &SecretRef,
        [invalid, invalid_kind]: [&'static str; 2],
    ) -> Result<Authority, ConditionFault> {
        let SecretRef { group, kind, name, .. } = reference;
        if !group.is_empty() || kind != "ConfigMap" {
            return Err(ConditionFault::new(invalid_kind, format!("authorities of the kind {kind} are not supported")));
        }
        let namespace = permitted(set, owner, reference)?;
        let fault = |words: String| ConditionFault::new(invalid, format!("ConfigMap {namespace}/{name}: {words}"));
        let map = set.get::<ConfigMap>(namespace, name).ok_or_else(|| fault("does not exist".into()))?;
        let text = map.data.as_ref().and_then(|data| data.get("ca.crt"));
        let text = text.ok_or_else(|| fault("has no ca.crt".into()))?;
        Authority::from_pem(text.as_bytes()).map_err(fault)
    }

    /// Resolves the verification of clients of a listener. The second value is the first fault, also of a verification
    /// that other authorities make possible; none is possible if the first value is `None`.
    pub fn client(
        &mut self,
        set: &ObjectSet,
        gateway: &Gateway,
        port: i32,
        validation: &ClientValidation,
    ) -> (Option<ClientVerification>, Option<ConditionFault>) {
        let namespace = gateway.metadata.namespace.as_deref().unwrap_or("default");
        let name = gateway.metadata.name.as_deref().unwrap_or("");
        let owner = Owner { kind: "Gateway", namespace, name };
        let (mut found, mut fault) = (Vec::new(), None);
        for reference in &validation.authorities {
            match self.authority(set, owner, reference, ["InvalidCACertificateRef", "InvalidCACertificateKind"]) {
                Ok(authority) => found.push(authority),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        if found.is_empty() {
            return (
                None,
                fault.or_else(|| Some(ConditionFault::new("InvalidCACertificateRef", "no authority is named"))),
            );
        }
        let authority = FileName::new(&["gateways", namespace, name, &port.to_string()]);
        self.authorities.insert(authority.clone(), Authority::join(&found));
        let mode = if validation.is_insecure { ClientMode::Unverified } else { ClientMode::Required };
        (Some(ClientVerification { authority, mode }), fault)
    }
}

/// Returns the namespace of a reference that stays in its own or has a grant.
fn permitted<'a>(set: &ObjectSet, owner: Owner<'a>, reference: &'a SecretRef) -> Result<&'a str, ConditionFault> {
    let namespace = reference.namespace.as_deref().unwrap_or(owner.namespace);
    let from = Referrer { group: crate::api::GROUP, kind: owner.kind, namespace: owner.namespace };
    let to = Referent { group: &reference.group, kind: &reference.kind, namespace, name: &reference.name };
    match set.permits(from, to) {
        true => Ok(namespace),
        false => Err(ConditionFault::new(
            "RefNotPermitted",
            format!("no ReferenceGrant in {namespace} permits {} {}", reference.kind, reference.name),
        )),
    }
}
