//! Names of Kubernetes pods, from the directories of their logs: no access to the API is needed.
//!
//! kubelet keeps the logs of a pod in `/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/…`
//! (`BuildPodLogsDirectory`), and a link to each container's log in
//! `/var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log` (`legacyLogSymlink`). Only names are
//! read, no file is opened. They are kubelet's; still, nothing is taken that Kubernetes would not
//! accept as a name.

use std::path::{Path, PathBuf};

use gputrace_capture::identity::Pod;
use gputrace_files::target::Root;

/// Maximum number of names read from a directory. Kubernetes supports some hundred pods on a node.
const MOST_NAMES: usize = 16 << 10;
/// Maximum length of a name: of a pod or namespace (RFC 1123).
const LONGEST_NAME: usize = 253;

/// The directories in which kubelet keeps logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLogs {
    /// A directory for each pod.
    pub pods: PathBuf,
    /// A link for each container.
    pub containers: PathBuf,
}

impl Default for PodLogs {
    fn default() -> Self {
        Self {
            pods: "/var/log/pods".into(),
            containers: "/var/log/containers".into(),
        }
    }
}

impl PodLogs {
    /// The pod with this UID, and the name of its container with the id `container`. Names that
    /// cannot be found are empty.
    #[must_use]
    pub fn pod(&self, uid: &str, container: Option<&str>) -> Pod {
        let nameless = Pod {
            uid: uid.to_owned(),
            ..Pod::default()
        };
        let directories = list(&self.pods);
        let found = directories.iter().find_map(|directory| {
            let (namespace, name) = of_directory(directory, uid)?;
            Some((directory, namespace, name))
        });
        let links = container.map_or(Vec::new(), |_| list(&self.containers));
        let link = container.and_then(|id| links.iter().find_map(|link| of_link(link, id)));
        match (found, link) {
            (Some((directory, namespace, name)), link) => Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                container: match link.filter(|link| link.1 == namespace && link.0 == name) {
                    Some((.., container)) => container.to_owned(),
                    None => only(&self.pods.join(directory)),
                },
                ..nameless
            },
            (None, Some((name, namespace, container))) => Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                container: container.to_owned(),
                ..nameless
            },
            (None, None) => nameless,
        }
    }
}

/// Namespace and name of a pod from the name of its directory, if its UID is `uid`.
fn of_directory<'a>(directory: &'a str, uid: &str) -> Option<(&'a str, &'a str)> {
    let (rest, its) = directory.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_')?;
    (its == uid && is_name(namespace) && is_name(name)).then_some((namespace, name))
}

/// Pod, namespace and container from the name of a link, if the container's id is `id`.
fn of_link<'a>(link: &'a str, id: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let rest = link.strip_suffix(".log")?.strip_suffix(id)?;
    let mut parts = rest.strip_suffix('-')?.split('_');
    let (name, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && [name, namespace, container].into_iter().all(is_name);
    is_whole.then_some((name, namespace, container))
}

/// The container of a pod that has only one.
fn only(directory: &Path) -> String {
    match list(directory).as_slice() {
        [name] if is_name(name) => name.clone(),
        _ => String::new(),
    }
}

/// Whether Kubernetes accepts this as a name (RFC 1123).
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name
            .bytes()
            .all(|byte| is_part(byte) || matches!(byte, b'-' | b'.'))
}

/// Names in a directory; none if it cannot be read.
fn list(directory: &Path) -> Vec<String> {
    let names = Root::own().and_then(|root| root.list(directory, MOST_NAMES));
    let names = names.unwrap_or_default().into_iter();
    names.filter_map(|name| name.into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const UID: &str = "3fa85f64-5717-4562-b3fc-2c963f66afa6";

    #[test]
    fn names_from_directories() {
        let directory = tempfile::tempdir().unwrap();
        let logs = PodLogs {
            pods: directory.path().join("pods"),
            containers: directory.path().join("containers"),
        };
        let id = "0123456789abcdef".repeat(4);
        let named = |pod: &Pod| [&pod.namespace, &pod.name, &pod.container].map(String::clone);
        assert_eq!(named(&logs.pod(UID, Some(&id))), ["", "", ""]);
        let of_pod = logs.pods.join(format!("default_trainer-0_{UID}"));
        fs::create_dir_all(of_pod.join("main")).unwrap();
        fs::create_dir_all(logs.pods.join("kube-system_other_77777777")).unwrap();
        assert_eq!(
            named(&logs.pod(UID, Some(&id))),
            ["default", "trainer-0", "main"]
        );
        // With two containers, the link tells.
        fs::create_dir(of_pod.join("sidecar")).unwrap();
        assert_eq!(named(&logs.pod(UID, None)), ["default", "trainer-0", ""]);
        fs::create_dir(&logs.containers).unwrap();
        let link = format!("trainer-0_default_sidecar-{id}.log");
        std::os::unix::fs::symlink("/nonexistent", logs.containers.join(link)).unwrap();
        assert_eq!(
            named(&logs.pod(UID, Some(&id))),
            ["default", "trainer-0", "sidecar"]
        );
        assert_eq!(
            named(&logs.pod("88888888", Some(&id))),
            ["default", "trainer-0", "sidecar"]
        );
    }

    #[test]
    fn what_kubernetes_would_not_accept() {
        for none in [
            "default_trainer",
            "a_b_c_1-2",
            "A_b_1-2",
            "_b_1-2",
            "a\n_b_1-2",
            "a_b_1-3",
        ] {
            assert_eq!(of_directory(none, "1-2"), None, "{none}");
        }
        for none in [
            "p_n_c-1.log.gz",
            "p_n_c_d-1.log",
            "p_n-1.log",
            "p_n_-1.log",
            "p_n_c1.log",
        ] {
            assert_eq!(of_link(none, "1"), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_bearable(name in "([a-z]{1,3}|_|-|[.]log|\\PC){0,12}", id in "[a-z]{0,2}") {
            let _ = of_directory(&name, &id);
            let _ = of_link(&name, &id);
        }
    }
}
