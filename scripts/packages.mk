# What other machines install. `make help` prints the line "# TARGET: sentence" above each; docs/INSTALL.md tells it whole.
# All are made from the last commit, in packages.

# deb: packages for Debian in packages/deb, built on this machine (needs dpkg-dev and what debian/control names)
# test-packages: builds all packages in clean roots, installs them in bare ones and uses them; needs root, debootstrap; minutes
# wheel: a wheel for other systems in packages/wheel, with the libraries inside; auditwheel comes from PyPI
# sdist: the source distribution of the Python package, in packages/sdist
.PHONY: deb wheel sdist test-packages
deb:
	@scripts/make-deb.sh
wheel:
	@scripts/make-wheel.sh
sdist:
	@scripts/make-sdist.sh
test-packages:
	@scripts/test-packages.sh $(PARTS)

# kvik --version says of which commit it is. The file changes when that does; it is not part of the library.
$(B)/commit.h: objects
	@mkdir -p $(@D) && scripts/commit.sh | cmp -s - $@ || scripts/commit.sh >$@
$(B)/src/cli/version.o: $(B)/commit.h
$(B)/src/cli/version.o: BASEFLAGS += -include $(B)/commit.h
