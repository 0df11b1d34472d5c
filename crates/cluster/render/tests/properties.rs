//! Properties of the whole way from manifests to a configuration: the order of objects has no effect, and no byte of an
//! object leaves its argument.

use std::fs;
use std::path::Path;

use cluster_gateway::{GatewayTranslation, Settings, translate_gateways};
use cluster_model::{
    Action, Backend, Conditions, Cors, Endpoint, EndpointGroup, FieldEdits, Filters, GroupName, HostName, HttpListener,
    ListenSocket, Location, Model, ModelRedirect, ObjectOrigin, PathMatch, PathRewrite, Policies, RedirectPath,
    StreamAction, StreamHost, StreamListener, ValueMatch, VirtualHost,
};
use cluster_objects::{ObjectSet, read_manifests};
use cluster_render::{ConfigText, render_model, render_skeleton, render_tree};
use conf_syntax::writer::{WriteNode, first_difference};
use conf_syntax::{FileId, parse_file};
use proptest::prelude::*;
use serde_json::Value;

/// Documents of all manifests, by case.
fn documents() -> Vec<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
        .iter()
        .map(|case| {
            let text = fs::read_to_string(case.join("input.yaml")).unwrap();
            text.split("\n---\n").map(str::to_owned).collect()
        })
        .collect()
}

fn read(documents: &[String]) -> ObjectSet {
    let mut set = ObjectSet::default();
    for document in documents {
        read_manifests("test", document, &mut set, &mut Vec::new());
    }
    set
}

fn text(translation: &GatewayTranslation) -> String {
    render_model(&translation.model, &cluster_render::Settings::default()).main
}

/// Asserts that the text of a model has the words of its tree, and nothing else.
fn assert_stays_in_arguments(model: &Model) {
    let settings = cluster_render::Settings { resolver: Some("10.0.0.10".into()), ipv6: true, ..Default::default() };
    let config = render_model(model, &settings);
    let items = parse_file(FileId(0), config.main.as_bytes());
    assert_eq!(first_difference(&render_tree(model, &settings), &items), None, "in\n{}", config.main);
    for name in config.files.keys() {
        assert!(!name.starts_with('/') && !name.split('/').any(|part| part.starts_with('.')), "{name}");
    }
}

/// Text that would end an argument, a line or a comment, beside arbitrary text.
fn hostile() -> impl Strategy<Value = String> {
    let known = [
        "}\n",
        "; }",
        "\";",
        "';",
        "\\",
        "\\\"",
        "$host",
        "${x",
        "#",
        "\r\nX: y",
        "\0",
        "../../etc",
        "~^(.*)$",
        "*",
        "a b",
        " ",
        "",
        "{",
        "\u{2028}",
        "%0a",
        "/x y;",
        "(",
        "default",
        "\\default",
        "-",
    ];
    prop_oneof![
        prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        ".{0,40}",
        "[ \\t\\r\\n;{}\"'\\\\$#~]{0,12}",
        prop::collection::vec(prop::sample::select(known.to_vec()), 1..4).prop_map(|words| words.concat()),
        (4000..5000usize).prop_map(|length| "\"".repeat(length)),
    ]
}

/// Places of strings in a document.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Object(object) => {
            for (key, value) in object {
                pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_of_objects_has_no_effect(seed in any::<u64>()) {
        for mut documents in documents() {
            let expected = translate_gateways(&read(&documents), &Settings::default());
            // A shuffle from the seed.
            let mut state = seed | 1;
            for index in (1..documents.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                documents.swap(index, (state >> 33) as usize % (index + 1));
            }
            let found = translate_gateways(&read(&documents), &Settings::default());
            prop_assert_eq!(text(&expected), text(&found));
            prop_assert_eq!(&expected.statuses, &found.statuses);
            prop_assert_eq!(&expected.complaints, &found.complaints);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any strings of an object are replaced, names and kinds included.
    #[test]
    fn no_string_of_an_object_leaves_its_argument(
        case in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), hostile()), 1..4),
    ) {
        let all = documents();
        let documents = case.get(&all);
        let mut values: Vec<Value> =
            documents.iter().filter_map(|document| serde_saphyr::from_str(document).ok()).collect();
        for (place, text) in changes {
            let mut found = Vec::new();
            for (index, value) in values.iter().enumerate() {
                let mut own = Vec::new();
                pointers(value, "", &mut own);
                found.extend(own.into_iter().map(|pointer| (index, pointer)));
            }
            let (index, pointer) = place.get(&found).clone();
            if let Some(value) = values[index].pointer_mut(&pointer) {
                *value = Value::String(text);
            }
        }
        let (mut set, mut complaints) = (ObjectSet::default(), Vec::new());
        for value in &values {
            read_manifests("test", &value.to_string(), &mut set, &mut complaints);
        }
        let translation = translate_gateways(&set, &Settings::default());
        complaints.extend(translation.complaints);
        for complaint in complaints {
            prop_assert!(!complaint.to_string().contains(['\n', '\r']), "one line each");
        }
        assert_stays_in_arguments(&translation.model);
    }

    /// Even a model whose translator checked nothing.
    #[test]
    fn no_string_of_a_model_leaves_its_argument(words in prop::collection::vec(hostile(), 24), status in any::<u16>()) {
        let mut words = words.into_iter().cycle();
        let mut word = || words.next().unwrap_or_default();
        let origin = ObjectOrigin { kind: word(), namespace: word(), name: word(), part: word() };
        let name = GroupName::new(&[&word(), &word()]);
        let group = EndpointGroup { origin: origin.clone(), endpoints: vec![Endpoint::new(word(), 80)], settings: Vec::new(), source: None, has_unusable: false };
        let mut backend = Backend::new(Some(name.clone()));
        backend.filters.host = Some(word());
        let fields = FieldEdits { set: vec![(word(), word())], add: vec![(word(), word())], remove: vec![word()] };
        let filters = Filters {
            request_fields: fields.clone(),
            response_fields: fields,
            host: Some(word()),
            path: Some(PathRewrite::Full(word())),
            mirrors: Vec::new(),
            cors: Some(Cors { allow_origins: vec![word()], allow_methods: vec![word()], ..Cors::default() }),
        };
        let conditions = Conditions {
            method: Some(word()),
            fields: vec![(word(), ValueMatch::Regex(word()))],
            query: vec![(word(), ValueMatch::Exact(word()))],
        };
        let redirect = ModelRedirect {
            scheme: Some(word()),
            host: Some(word()),
            port: Some(status),
            path: Some(RedirectPath::Prefix(word())),
            status,
        };
        let mut second = backend.clone();
        second.filters.path = Some(PathRewrite::Prefix(word()));
        let proxy = Action::Proxy { backends: vec![backend.clone(), second], no_backend: 500 };
        let actions = [Action::Redirect(redirect), proxy, Action::Respond(status)];
        let locations: Vec<Location> = actions.into_iter().map(|action| Location {
            origin: origin.clone(),
            path: PathMatch::Regex { pattern: word(), is_case_insensitive: true },
            conditions: conditions.clone(),
            filters: filters.clone(),
            policies: Policies::default(),
            action,
            extra: vec![WriteNode::Comment(word())],
        }).collect();
        let host = VirtualHost {
            origin: origin.clone(),
            name: HostName::Exact(word()),
            listener: None,
            tls: None,
            locations,
            extra: Vec::new(),
        };
        let stream = StreamHost {
            origin: origin.clone(),
            name: HostName::Wildcard(word()),
            action: StreamAction::Passthrough,
            backends: vec![backend],
        };
        let socket = ListenSocket { port: 80, address: None };
        let model = Model {
            http: [(socket, HttpListener { is_tls: false, hosts: vec![host] })].into(),
            tcp: [(ListenSocket { port: 443, address: None }, StreamListener::Tls(vec![stream]))].into(),
            groups: [(name, group)].into(),
            ..Model::default()
        };
        assert_stays_in_arguments(&model);
    }
}

/// Endpoints change nothing but the servers of their group: the API can change them.
#[test]
fn endpoints_change_servers_only() {
    let manifest = |addresses: &str| {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/http-weights/input.yaml"))
                .unwrap()
                .replace("endpoints:\n- {addresses: [10.0.114.1]}", addresses);
        let translation = translate_gateways(&read(&[text]), &Settings::default());
        let config = render_model(&translation.model, &cluster_render::Settings::default());
        let skeleton = render_skeleton(&translation.model, &cluster_render::Settings::default());
        assert_eq!(ConfigText::new(&config).skeleton(), skeleton);
        (config, skeleton)
    };
    let (one, one_skeleton) = manifest("endpoints:\n- {addresses: [10.0.114.1]}");
    let (none, none_skeleton) = manifest("endpoints: []");
    let (two, two_skeleton) = manifest("endpoints:\n- {addresses: [10.0.114.9]}\n- {addresses: [10.0.114.10]}");
    for (other, skeleton) in [(&none, none_skeleton), (&two, two_skeleton)] {
        assert_ne!(one.main, other.main);
        assert_eq!(one_skeleton, skeleton);
    }
    let servers = |config: &cluster_render::RenderedConfig| -> Vec<String> {
        config.groups.values().flatten().map(|server| server.server.clone()).collect()
    };
    assert_eq!(servers(&none), ["unix:/run/tidegate/unavailable.sock", "10.0.118.1:8080"]);
    assert_eq!(servers(&two), ["10.0.114.9:8080", "10.0.114.10:8080", "10.0.118.1:8080"]);
    let renamed = {
        let text = documents().concat().join("\n---\n");
        let translation = translate_gateways(&read(&[text]), &Settings::default());
        render_skeleton(&translation.model, &cluster_render::Settings::default())
    };
    assert_ne!(one_skeleton, renamed);
}
