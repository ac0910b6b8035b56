# deploy/package fills in the version and the checksums when a release is made.
class Agenttrace < Formula
  desc "Shows what AI agents did: sessions and traces from OpenTelemetry"
  homepage "https://github.com/agenttrace/agenttrace"
  version "0.0.0"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/agenttrace/agenttrace/releases/download/v#{version}/agenttrace_v#{version}_darwin_arm64"
      sha256 "darwin_arm64"
    end
    on_intel do
      url "https://github.com/agenttrace/agenttrace/releases/download/v#{version}/agenttrace_v#{version}_darwin_amd64"
      sha256 "darwin_amd64"
    end
  end
  on_linux do
    on_arm do
      url "https://github.com/agenttrace/agenttrace/releases/download/v#{version}/agenttrace_v#{version}_linux_arm64"
      sha256 "linux_arm64"
    end
    on_intel do
      url "https://github.com/agenttrace/agenttrace/releases/download/v#{version}/agenttrace_v#{version}_linux_amd64"
      sha256 "linux_amd64"
    end
  end

  def install
    bin.install Dir["agenttrace_*"].first => "agenttrace"
    generate_completions_from_executable(bin/"agenttrace", "completion")
    system bin/"agenttrace", "man", man1
  end

  service do
    run [opt_bin/"agenttrace", "collect"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/agenttrace version")
  end
end
