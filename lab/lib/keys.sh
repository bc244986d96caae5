# shellcheck shell=bash
# Makes the ssh keys and files for this one lab anew each time: the image contains no secret.

make_keys() {
    mkdir "$LAB_DIR/share"
    ssh-keygen -q -t ed25519 -N '' -C pgio-lab -f "$LAB_DIR/key"
    ssh-keygen -q -t ed25519 -N '' -C pgio-lab-host -f "$LAB_DIR/share/host_key"
    cp "$LAB_DIR/key.pub" "$LAB_DIR/share/authorized_keys"
    sed 's/^/primary,secondary /' "$LAB_DIR/share/host_key.pub" >"$LAB_DIR/known_hosts"
    cat >"$LAB_DIR/ssh_config" <<END
# ssh -F $LAB_DIR/ssh_config primary      (inside the lab's network: lab/enter)
Host primary
    HostName $PRIMARY_ADDRESS
    HostKeyAlias primary
Host secondary
    HostName $SECONDARY_ADDRESS
    HostKeyAlias secondary
Host primary secondary
    User root
    IdentityFile $LAB_DIR/key
    IdentitiesOnly yes
    UserKnownHostsFile $LAB_DIR/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
END
    {
        cat /etc/hosts
        echo "$PRIMARY_ADDRESS primary"
        echo "$SECONDARY_ADDRESS secondary"
    } >"$LAB_DIR/hosts"
}
