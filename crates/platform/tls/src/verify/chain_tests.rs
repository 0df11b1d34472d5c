//! Chains that OpenSSL accepts and refuses, some also checked by `openssl verify`.

use super::*;
use crate::testing::{Authority, TestCertificate, authority_params, openssl, openssl_v1};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, SerialNumber};
use rustls::pki_types::CertificateDer;

fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

fn read(issued: &TestCertificate) -> Certificate {
    Certificate::parse(issued.certificate_der()).expect("a certificate")
}

fn trust(anchors: &[&Authority], depth: u32) -> Trust {
    Trust { anchors: anchors.iter().map(|a| a.certificate()).collect(), revocations: Vec::new(), depth }
}

fn client(trust: &Trust, chain: &[Certificate]) -> VerifyVerdict {
    trust.verify(chain, now(), Purpose::Client)
}

#[test]
fn the_verdicts_are_those_of_openssl() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let int = root.intermediate(authority_params("int"));
    let user = int.client("user");
    let leaf = read(&user);
    let (direct, int_certificate) = (read(&root.client("direct")), int.certificate());
    for (anchors, depth, chain, want) in [
        (vec![&root], 1, vec![direct.clone()], VerifyVerdict::OK),
        (vec![&root], 0, vec![direct.clone()], VerifyVerdict::OK),
        (vec![&root], 1, vec![leaf.clone(), int_certificate.clone()], VerifyVerdict::OK),
        (vec![&root], 0, vec![leaf.clone(), int_certificate.clone()], VerifyVerdict::NO_LOCAL_ISSUER),
        (vec![&root, &int], 1, vec![leaf.clone()], VerifyVerdict::OK),
        // Trusting only the intermediate does not suffice.
        (vec![&int], 1, vec![leaf.clone()], VerifyVerdict::UNABLE_TO_GET_ISSUER),
        (vec![&root], 1, vec![leaf.clone()], VerifyVerdict::UNVERIFIED_LEAF),
        (vec![&other], 1, vec![direct.clone()], VerifyVerdict::UNVERIFIED_LEAF),
        (
            vec![&other],
            1,
            vec![leaf.clone(), int_certificate.clone(), root.certificate()],
            VerifyVerdict::SELF_SIGNED_IN_CHAIN,
        ),
        (vec![&other], 1, vec![root.certificate()], VerifyVerdict::SELF_SIGNED),
        (vec![&root], 1, vec![root.certificate()], VerifyVerdict::OK),
        (vec![], 1, vec![], VerifyVerdict::NO_LOCAL_ISSUER),
    ] {
        assert_eq!(
            client(&trust(&anchors, depth), &chain),
            want,
            "{:?}",
            chain.iter().map(Certificate::common_name).collect::<Vec<_>>()
        );
    }
    let mut long = vec![leaf.clone()];
    long.extend(std::iter::repeat_n(other.certificate(), 200));
    assert_eq!(client(&trust(&[&root], 1), &long), VerifyVerdict::UNVERIFIED_LEAF);
}

#[test]
fn an_authority_of_the_same_name_signs_for_itself_alone() {
    let (root, impostor) = (Authority::new("root"), Authority::new("root"));
    let forged = read(&impostor.client("user"));
    let verdict = client(&trust(&[&root], 1), std::slice::from_ref(&forged));
    assert!(!verdict.is_ok(), "{verdict:?}");
    assert_eq!(client(&trust(&[&root], 1), &[impostor.certificate()]), VerifyVerdict::SELF_SIGNED);
    assert!(!client(&trust(&[&root], 1), &[forged.clone(), impostor.certificate()]).is_ok());
    assert_eq!(client(&trust(&[&root, &impostor], 1), &[forged]), VerifyVerdict::OK);
}

#[test]
fn a_leaf_signs_nothing() {
    let root = Authority::new("root");
    let mut params = authority_params("leaf");
    params.is_ca = IsCa::ExplicitNoCa;
    let leaf = root.intermediate(params);
    let forged = read(&leaf.client("user"));
    let chain = [forged, leaf.certificate()];
    // OpenSSL's last error counts.
    assert_eq!(client(&trust(&[&root], 5), &chain), VerifyVerdict::PURPOSE);
    assert_eq!(trust(&[&root], 5).verify(&chain, now(), Purpose::Any), VerifyVerdict::INVALID_CA);
    let mut params = authority_params("plain");
    params.is_ca = IsCa::NoCa;
    params.key_usages.clear();
    let plain = root.intermediate(params);
    let forged = read(&plain.client("user"));
    assert_eq!(client(&trust(&[&root], 5), &[forged, plain.certificate()]), VerifyVerdict::PURPOSE);
}

#[test]
fn path_lengths_purposes_and_times_are_kept() {
    let root = Authority::new("root");
    let mut params = authority_params("short");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = root.intermediate(params);
    let below = short.intermediate(authority_params("below"));
    let user = read(&below.client("user"));
    assert_eq!(
        client(&trust(&[&root], 5), &[user, below.certificate(), short.certificate()]),
        VerifyVerdict::PATH_LENGTH
    );

    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server = read(&root.issue(params));
    assert_eq!(client(&trust(&[&root], 1), std::slice::from_ref(&server)), VerifyVerdict::PURPOSE);
    assert_eq!(trust(&[&root], 1).verify(&[server], now(), Purpose::Server), VerifyVerdict::OK);

    let user = read(&root.client("user"));
    let trust = trust(&[&root], 1);
    assert_eq!(
        trust.verify(std::slice::from_ref(&user), user.not_before - 1, Purpose::Client),
        VerifyVerdict::NOT_YET_VALID
    );
    assert_eq!(trust.verify(std::slice::from_ref(&user), user.not_after + 1, Purpose::Client), VerifyVerdict::EXPIRED);
    // An unknown authority's time counts, too, and last: `optional_no_ca` does not ignore it.
    let stranger = read(&Authority::new("other").client("stranger"));
    let verdict = |now| trust.verify(std::slice::from_ref(&stranger), now, Purpose::Client);
    assert_eq!(verdict(stranger.not_after), VerifyVerdict::UNVERIFIED_LEAF);
    assert_eq!(verdict(stranger.not_after + 1), VerifyVerdict::EXPIRED);
    assert_eq!(verdict(stranger.not_before - 1), VerifyVerdict::NOT_YET_VALID);
}

#[test]
fn a_changed_certificate_is_not_signed() {
    let root = Authority::new("root");
    let issued = root.client("user-name");
    let mut der = issued.certificate_der().as_ref().to_vec();
    let at = der.windows(9).position(|w| w == b"user-name").expect("the name");
    der[at] = b'U';
    let changed = Certificate::parse(CertificateDer::from(der)).expect("a certificate");
    assert_eq!(client(&trust(&[&root], 1), &[changed]), VerifyVerdict::BAD_SIGNATURE);
}

#[test]
fn names_are_kept_within_constraints() {
    let root = Authority::new("root");
    let mut params = authority_params("bound");
    params.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("a.example".into())],
        excluded_subtrees: vec![rcgen::GeneralSubtree::DnsName("no.a.example".into())],
    });
    let bound = root.intermediate(params);
    let trust = trust(&[&root], 2);
    for (name, want) in [
        ("a.example", VerifyVerdict::OK),
        ("x.a.example", VerifyVerdict::OK),
        ("xa.example", VerifyVerdict::NOT_PERMITTED),
        ("b.example", VerifyVerdict::NOT_PERMITTED),
        ("x.no.a.example", VerifyVerdict::EXCLUDED),
    ] {
        let leaf = read(&bound.server(&[name]));
        assert_eq!(trust.verify(&[leaf, bound.certificate()], now(), Purpose::Server), want, "{name}");
    }
}

#[test]
fn many_names_below_many_constraints_are_not_compared_for_long() {
    let root = Authority::new("root");
    let trust = trust(&[&root], 2);
    for (constraints, names, want) in [(1_000, 100, VerifyVerdict::OK), (9_000, 4_000, VerifyVerdict::UNSPECIFIED)] {
        let mut params = authority_params("bound");
        params.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: Vec::new(),
            excluded_subtrees: vec![rcgen::GeneralSubtree::DnsName("b".into()); constraints],
        });
        let bound = root.intermediate(params);
        let leaf = read(&bound.server(&vec!["a"; names]));
        let found = trust.verify(&[leaf, bound.certificate()], now(), Purpose::Server);
        assert_eq!(found, want, "{names} names, {constraints} constraints");
    }
    // A long subject against many directory names.
    let mut params = authority_params("bound");
    let mut base = rcgen::DistinguishedName::new();
    base.push(rcgen::DnType::OrganizationName, "b");
    params.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: Vec::new(),
        excluded_subtrees: vec![rcgen::GeneralSubtree::DirectoryName(base); 1_000],
    });
    let bound = root.intermediate(params);
    let leaf = read(&bound.client(&"a".repeat(30_000)));
    assert_eq!(client(&trust, &[leaf, bound.certificate()]), VerifyVerdict::UNSPECIFIED);
}

fn list(authority: &Authority, serials: &[u64]) -> RevocationList {
    let day = |n| rcgen::date_time_ymd(n, 1, 1);
    let revoked_certs = serials
        .iter()
        .map(|n| rcgen::RevokedCertParams {
            serial_number: SerialNumber::from(*n),
            revocation_time: day(2025),
            reason_code: None,
            invalidity_date: None,
        })
        .collect();
    let params = rcgen::CertificateRevocationListParams {
        this_update: day(2025),
        next_update: day(2095),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let text = params.signed_by(&authority.issuer()).expect("signed").pem().expect("PEM");
    RevocationList::all(text.as_bytes()).expect("read").remove(0)
}

#[test]
fn revocation_is_asked_for_the_whole_chain() {
    let (root, other) = (Authority::new("root"), Authority::new("root"));
    let serial = |n: u64| {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(n));
        read(&root.issue(params))
    };
    let with = |lists: Vec<RevocationList>| Trust { revocations: lists, ..trust(&[&root], 3) };
    let mine = with(vec![list(&root, &[7])]);
    assert_eq!(client(&mine, &[serial(6)]), VerifyVerdict::OK);
    assert_eq!(client(&mine, &[serial(7)]), VerifyVerdict::REVOKED);
    assert_eq!(client(&with(vec![list(&other, &[])]), &[serial(6)]), VerifyVerdict::BAD_CRL_SIGNATURE);
    let int = root.intermediate(authority_params("int"));
    let user = read(&int.client("user"));
    assert_eq!(client(&mine, &[user.clone(), int.certificate()]), VerifyVerdict::NO_CRL);
    let both = with(vec![list(&root, &[7]), list(&int, &[])]);
    assert_eq!(client(&both, &[user.clone(), int.certificate()]), VerifyVerdict::OK);
    // Nothing in the path can have signed the list about its last certificate.
    let of_int = |lists| Trust { revocations: lists, ..trust(&[&int], 3) };
    let checked = of_int(vec![list(&root, &[]), list(&int, &[])]);
    assert_eq!(client(&checked, std::slice::from_ref(&user)), VerifyVerdict::BAD_CRL_SIGNATURE);
    assert_eq!(both.verify(&[serial(6)], rcgen_year(2096), Purpose::Any), VerifyVerdict::CRL_EXPIRED);
}

fn rcgen_year(year: i32) -> i64 {
    rcgen::date_time_ymd(year, 1, 1).unix_timestamp()
}

#[test]
fn version_1_authorities_and_leaves_are_taken_as_openssl_takes_them() {
    let Some(v1) = openssl_v1("v1") else { return };
    let certificate = read(&v1);
    let own = Trust { anchors: vec![certificate.clone()], depth: 1, ..Trust::default() };
    assert_eq!(client(&own, std::slice::from_ref(&certificate)), VerifyVerdict::OK);
    assert_eq!(client(&Trust { depth: 1, ..Trust::default() }, &[certificate]), VerifyVerdict::SELF_SIGNED);
}

#[test]
fn the_openssl_program_agrees() {
    let directory = std::env::temp_dir().join(format!("tidegate-verify-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (root, other) = (Authority::new("root"), Authority::new("root"));
    let int = root.intermediate(authority_params("int"));
    let mut no_ca = authority_params("noca");
    no_ca.is_ca = IsCa::ExplicitNoCa;
    let no_ca = root.intermediate(no_ca);
    let empty = String::new();
    let cases = [
        (&root.pem, &empty, root.client("a").certificate),
        (&root.pem, &int.pem, int.client("b").certificate),
        (&other.pem, &int.pem, int.client("c").certificate),
        (&root.pem, &empty, int.client("d").certificate),
        (&root.pem, &no_ca.pem, no_ca.client("e").certificate),
        (&int.pem, &empty, int.client("f").certificate),
        (&other.pem, &root.pem, root.client("g").certificate),
        (&root.pem, &empty, root.pem.clone()),
        (&other.pem, &empty, root.pem.clone()),
    ];
    for (number, (anchor, untrusted, leaf)) in cases.iter().enumerate() {
        let anchor_file = path(&format!("{number}-a.pem"), anchor);
        let leaf_file = path(&format!("{number}-l.pem"), leaf);
        let mut args = vec!["verify", "-purpose", "sslclient", "-no-CApath", "-no-CAfile", "-CAfile", &anchor_file];
        let untrusted_file = path(&format!("{number}-u.pem"), untrusted);
        if !untrusted.is_empty() {
            args.extend(["-untrusted", &untrusted_file]);
        }
        args.push(&leaf_file);
        let Ok(out) = std::process::Command::new("openssl").args(&args).output() else {
            println!("no openssl program here: not compared");
            break;
        };
        let all = |text: &str| crate::certs::parse_certificates(text.as_bytes()).expect("certificates");
        let trust = Trust { anchors: all(anchor), depth: 100, ..Trust::default() };
        let chain = [all(leaf), all(untrusted)].concat();
        assert_eq!(client(&trust, &chain).is_ok(), out.status.success(), "case {number}: {out:?}");
    }
    let _ = openssl(&["version"], b"");
    let _ = std::fs::remove_dir_all(&directory);
}
