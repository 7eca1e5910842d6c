variable "project" { type = string }

variable "region" {
  type    = string
  default = "europe-west3"
}

variable "name" {
  type    = string
  default = "twofold"
}

variable "image" {
  type        = string
  description = "The container image in Artifact Registry, by digest."
}

variable "cidr" {
  type    = string
  default = "10.42.0.0/24"
}

variable "callers" {
  type        = list(string)
  description = "IAM members that may call the service. None by default."
  default     = []
}

variable "copies" {
  type    = number
  default = 4
}

variable "database_cpus" {
  type    = number
  default = 2
}

variable "protect" {
  type    = bool
  default = true
}
