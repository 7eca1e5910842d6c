# A Cloud Run service in front of AlloyDB, both in one private network. Not applied by us: the provider is not to
# be had where the project is built, so these files are held against its schema (tests/deploy), no more.

terraform {
  required_version = ">= 1.6"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.0"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
}

resource "google_project_service" "needed" {
  for_each = toset([
    "alloydb.googleapis.com", "run.googleapis.com", "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
  ])
  service            = each.key
  disable_on_destroy = false
}

# Network

resource "google_compute_network" "this" {
  name                    = var.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "this" {
  name                     = var.name
  network                  = google_compute_network.this.id
  ip_cidr_range            = var.cidr
  private_ip_google_access = true
}

resource "google_compute_global_address" "services" {
  name          = "${var.name}-services"
  network       = google_compute_network.this.id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
}

resource "google_service_networking_connection" "this" {
  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services.name]
  depends_on              = [google_project_service.needed]
}

# Database. No initial user: a person makes the role the service connects as (README.md), through IAM.

resource "google_alloydb_cluster" "this" {
  cluster_id = var.name
  location   = var.region
  # The provider's protection of this resource: DEFAULT refuses to delete a cluster that has instances.
  deletion_policy = var.protect ? "DEFAULT" : "FORCE"

  network_config {
    network = google_compute_network.this.id
  }

  automated_backup_policy {
    enabled = true
  }

  depends_on = [google_service_networking_connection.this]
}

resource "google_alloydb_instance" "primary" {
  cluster           = google_alloydb_cluster.this.name
  instance_id       = "${var.name}-primary"
  instance_type     = "PRIMARY"
  availability_type = "REGIONAL"

  machine_config {
    cpu_count = var.database_cpus
  }

  client_connection_config {
    ssl_config {
      ssl_mode = "ENCRYPTED_ONLY"
    }
  }
}

# Secrets: their places only.

resource "google_secret_manager_secret" "this" {
  for_each  = toset(["store", "keys"])
  secret_id = "${var.name}-${each.key}"

  replication {
    auto {}
  }

  depends_on = [google_project_service.needed]
}

# Service

resource "google_service_account" "this" {
  account_id   = var.name
  display_name = "The ${var.name} service: reads its two secrets, nothing else"
}

resource "google_secret_manager_secret_iam_member" "this" {
  for_each  = google_secret_manager_secret.this
  secret_id = each.value.id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${google_service_account.this.email}"
}

resource "google_cloud_run_v2_service" "this" {
  name                = var.name
  location            = var.region
  ingress             = "INGRESS_TRAFFIC_INTERNAL_ONLY"
  deletion_protection = var.protect

  template {
    service_account = google_service_account.this.email

    scaling {
      min_instance_count = 1
      max_instance_count = var.copies
    }

    vpc_access {
      egress = "ALL_TRAFFIC"
      network_interfaces {
        network    = google_compute_network.this.id
        subnetwork = google_compute_subnetwork.this.id
      }
    }

    containers {
      image = var.image

      ports {
        container_port = 8420
      }

      resources {
        limits = { cpu = "2", memory = "4Gi" }
      }

      env {
        name = "TWOFOLD_STORE"
        value_source {
          secret_key_ref {
            secret  = google_secret_manager_secret.this["store"].secret_id
            version = "latest"
          }
        }
      }

      env {
        name = "TWOFOLD_KEYS_JSON"
        value_source {
          secret_key_ref {
            secret  = google_secret_manager_secret.this["keys"].secret_id
            version = "latest"
          }
        }
      }

      startup_probe {
        http_get {
          path = "/health"
        }
      }
    }
  }

  depends_on = [google_secret_manager_secret_iam_member.this]
}

# Who may call it, beside the service's own keys.
resource "google_cloud_run_v2_service_iam_member" "callers" {
  for_each = toset(var.callers)
  name     = google_cloud_run_v2_service.this.name
  location = var.region
  role     = "roles/run.invoker"
  member   = each.value

  lifecycle {
    precondition {
      condition     = !contains(["allUsers", "allAuthenticatedUsers"], each.value)
      error_message = "The service is not for the whole world; name the callers."
    }
  }
}

output "address" { value = google_cloud_run_v2_service.this.uri }
output "database" { value = google_alloydb_instance.primary.ip_address }
